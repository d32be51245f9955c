"""TRL, as programs of command jobs."""
