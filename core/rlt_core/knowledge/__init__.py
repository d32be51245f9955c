"""Known failures: what they print, their causes and remedies, and the search for them in logs. Pure."""
