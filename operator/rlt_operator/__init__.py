"""rlt's control plane: observe -> plan -> apply for every RLTrainingJob."""
