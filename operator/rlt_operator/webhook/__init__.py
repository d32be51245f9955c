"""The validating admission webhook, which rejects invalid RLTrainingJobs and RLRuntimes before they are stored."""
