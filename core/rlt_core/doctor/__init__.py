"""What a cluster has and lacks for RL post-training: `rlt doctor`. Pure."""
