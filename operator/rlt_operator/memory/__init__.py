"""What the status of a job remembers from one reconciliation to the next. `parts.py` lists all of it. Pure."""
