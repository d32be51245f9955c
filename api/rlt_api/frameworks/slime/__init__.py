"""slime and Miles, as programs of command jobs."""
