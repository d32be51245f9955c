"""The trained models: FSDP2 over all ranks, gloo on CPUs and NCCL on GPUs."""
