"""NeMo-RL, as programs of command jobs."""
