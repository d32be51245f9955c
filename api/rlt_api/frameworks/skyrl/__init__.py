"""SkyRL, as programs of command jobs."""
