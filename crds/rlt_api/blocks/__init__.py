"""The blocks of a job's spec, one file each. Words and defaults are verl's where verl has them (verl 0.9.1)."""
