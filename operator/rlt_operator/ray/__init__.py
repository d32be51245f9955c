"""Requests to the Ray heads of jobs, and the poller that reads their state."""
