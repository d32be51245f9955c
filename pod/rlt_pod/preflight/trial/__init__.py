"""The trials of the preflight stage `full`: engine, trainer and framework."""
