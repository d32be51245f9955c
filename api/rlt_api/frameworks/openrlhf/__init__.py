"""OpenRLHF: settings, options, rules and warnings."""
