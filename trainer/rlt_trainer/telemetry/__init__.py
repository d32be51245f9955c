"""Telemetry of a run: run directory, HTTP server, metrics, spans and sinks."""
