"""The status of a job: its fields, conditions and network."""
