"""`make gpu-bundle`: `make gpu-check` and what it needs, for a machine without a package registry."""
