"""What the operator makes for a job, one file for each kind: pure functions from the job to a manifest."""
