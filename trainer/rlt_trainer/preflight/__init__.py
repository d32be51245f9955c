"""Checks on the job's own nodes before the training: a process for each rank measures, pure functions judge."""
