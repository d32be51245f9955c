"""rlt's trainer: its config, rules and warnings."""
