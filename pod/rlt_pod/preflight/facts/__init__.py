"""What a pod measures for the preflight checks."""
