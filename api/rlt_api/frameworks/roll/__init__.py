"""ROLL: settings, roles, rules and warnings."""
