"""Runs: their directory, records and views."""
