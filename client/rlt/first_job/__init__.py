"""A first job for a model and a cluster: runtime, volume and job, with settings that the validation accepts."""
