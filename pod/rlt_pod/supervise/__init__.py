"""A job outside of Kubernetes: what the operator does for a program, done by a process beside it."""
