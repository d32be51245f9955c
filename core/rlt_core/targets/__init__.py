"""Jobs outside of Kubernetes: pure functions from a job to the files of Ray, Docker, Compose, Slurm or dstack."""
