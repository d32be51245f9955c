"""The validating admission webhook: wrong RLTrainingJobs and RLRuntimes are refused before they are stored."""
