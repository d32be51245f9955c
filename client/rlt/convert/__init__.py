"""Conversion of scripts, configs and manifests of other programs to RLTrainingJobs."""
