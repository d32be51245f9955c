"""The preflight checks: from facts to results."""
