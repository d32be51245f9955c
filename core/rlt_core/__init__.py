"""What the operator and `rlt` share: a job as manifests, the fabric of its nodes, and API clients."""
