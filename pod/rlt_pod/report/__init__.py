"""The report of a driver: its lines, metrics, records and server."""
