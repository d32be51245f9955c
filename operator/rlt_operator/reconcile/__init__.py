"""One reconciliation of a job: observe, plan, apply."""
