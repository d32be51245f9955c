"""The checks, one module each. `run` yields the figures as they are measured."""
