"""The spec of a job and of a runtime, with defaults, and the training config."""
