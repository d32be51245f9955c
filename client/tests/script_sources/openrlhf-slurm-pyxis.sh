#!/bin/bash
#SBATCH -p { partition }
#SBATCH -J { name }
#SBATCH -N 2
#SBATCH -t 4:00:00
#SBATCH --ntasks-per-node=1
#SBATCH --mem=0
SRC=/home/me/OpenRLHF
MOUNT="$SRC:/openrlhf,$HOME/.cache:/root/.cache"
IMAGE="nvcr.io/nvidia/pytorch:25.02-py3"
RAY=2.48.0
LOG="$(realpath .)/train-$SLURM_JOB_ID.log"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
all=( $nodes )
head=${all[0]}
srun --nodes=1 --ntasks=1 -w "$head" --container-image="$IMAGE" --container-mounts="$MOUNT" bash -c \
    "pip install ray[default]==$RAY && ray start --head --port=6379 --block" &>> ${LOG} &
sleep 10s
srun --overlap --nodes=1 --ntasks=1 -w "$head" --container-image="$IMAGE" --container-mounts="$MOUNT" bash -c \
"pip install ray[default]==$RAY && ray job submit --address=http://localhost:8265 \
    --runtime-env-json='{\"working_dir\": \"/openrlhf\", \"pip\": [\"math-verify\"]}' \
    -- python3 -m openrlhf.cli.train_ppo_ray \
    --ref.num_nodes 1 --ref.num_gpus_per_node 4 \
    --critic.num_nodes 1 --critic.num_gpus_per_node 4 \
    --actor.num_nodes 1 --actor.num_gpus_per_node 4 \
    --vllm.num_engines 2 --vllm.tensor_parallel_size 2 \
    --train.colocate_actor_ref \
    --actor.model_name_or_path org/sft-8b" &>> ${LOG}
