"""Clients of the Kubernetes API and of the Ray head behind it."""
