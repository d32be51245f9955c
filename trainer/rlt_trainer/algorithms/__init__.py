"""The mathematics of GRPO in pure torch: no Ray, no vLLM, no torch.distributed."""
