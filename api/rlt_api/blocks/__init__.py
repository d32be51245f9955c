"""The blocks of a job's spec, one file each. Fields have the names of verl 0.9.1 if verl has the setting.
docs/reference/verl-roll-mapping.md lists names and defaults of both."""
