"""Preflight checks of the job's nodes. A process for each rank measures, and pure functions evaluate."""
