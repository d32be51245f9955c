"""A local, read-only page of runs: a server on the loopback interface, and its JavaScript in static/."""
