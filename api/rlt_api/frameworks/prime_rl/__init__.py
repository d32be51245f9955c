"""prime-rl, as programs of command jobs."""
