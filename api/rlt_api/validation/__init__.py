"""The validation of a manifest: structure, rules and warnings."""
