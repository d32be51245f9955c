#!/bin/bash
#SBATCH -J grpo-pyxis
#SBATCH -N 2
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH -t 1-00:00:00
#SBATCH -A team42

CONTAINER=nvcr.io#nvidia/verl:25.10
MOUNTS=/lustre/data:/data,/lustre/ckpt:/ckpt
export NCCL_IB_HCA="=mlx5_0:1,mlx5_1:1"
export NCCL_SOCKET_IFNAME=^lo,docker0
export NCCL_IB_SL=1
srun --ntasks-per-node=1 --container-image=$CONTAINER --container-mounts=$MOUNTS \
    --container-workdir=/opt/verl --no-container-mount-home --mpi=pmix \
    bash -c 'export HYDRA_FULL_ERROR=1; cd /opt/verl/src && python3 -m verl.trainer.main_ppo \
        data.train_files=/data/train.parquet trainer.nnodes=2 trainer.n_gpus_per_node=8'
