#!/bin/bash
#SBATCH -N 2 -c 32 --gpus-per-task=4 --ntasks-per-node=1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
export NCCL_DEBUG=INFO
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 --rdzv_id $RANDOM --rdzv_backend c10d \
    --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT grpo_train.py --model /models/m --output /ckpt
