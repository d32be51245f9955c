"""Rollout engines (vLLM, or a sampler on transformers) and the sync of the policy's weights to them."""
