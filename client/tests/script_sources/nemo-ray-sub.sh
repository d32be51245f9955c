#!/bin/bash
# from the root of the repository
NUM_ACTOR_NODES=4
export UV_CACHE_DIR=/lustre/uv
COMMAND="uv run ./examples/run_grpo_math.py --config examples/configs/grpo_math_8B.yaml cluster.num_nodes=${NUM_ACTOR_NODES} cluster.gpus_per_node=8 grpo.max_num_steps=10" \
CONTAINER=nvcr.io/nvidia/nemo-rl:v0.5.0 \
MOUNTS="/lustre:/lustre" \
sbatch \
    --nodes=${NUM_ACTOR_NODES} \
    --account=team \
    --job-name=grpo-math \
    --partition=batch \
    --time=04:00:00 \
    --gres=gpu:8 \
    ray.sub
