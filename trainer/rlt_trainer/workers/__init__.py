"""The worker processes: one on each device."""
