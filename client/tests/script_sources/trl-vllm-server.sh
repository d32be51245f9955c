#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1,2,3 trl vllm-serve --model Qwen/Qwen2.5-7B --tensor_parallel_size 4 &
sleep 120
CUDA_VISIBLE_DEVICES=4,5,6,7 ACCELERATE_LOG_LEVEL=info accelerate launch \
    --config_file recipes/zero2.yaml --num_processes=4 src/train_grpo.py --config recipes/grpo.yaml
