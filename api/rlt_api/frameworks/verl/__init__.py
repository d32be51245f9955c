"""verl: settings, overrides, rules and warnings."""
