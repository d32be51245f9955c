"""The operator: reconciles every RLTrainingJob."""
