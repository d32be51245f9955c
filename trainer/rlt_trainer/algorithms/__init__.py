"""The formulas of reinforcement learning in pure torch: no Ray, no vLLM, no torch.distributed."""
