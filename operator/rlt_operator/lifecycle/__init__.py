"""The lifecycle of a job as a list of steps."""
