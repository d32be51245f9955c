"""The blocks of a job's spec, one file each. Words are verl's where verl has them (verl 0.9.1); where defaults differ,
docs/reference/verl-roll-mapping.md shows both."""
