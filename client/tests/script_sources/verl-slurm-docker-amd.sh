#!/bin/bash
#SBATCH --job-name=mi300-ppo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --mem=200G
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=28
export HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export GPU_MAX_HW_QUEUES=2
export NCCL_PROTO=Simple
export NCCL_IB_GID_INDEX=3
IMG=registry.example/verl.rocm:6.3
NAME="multinode_verl_train"
srun bash -c "docker build -f docker/Dockerfile.rocm -t $IMG ."
srun docker run --rm -d -e NCCL_PROTO -e HSA_NO_SCRATCH_RECLAIM=1 \
    --device /dev/dri --device /dev/kfd --network host --ipc host --group-add video \
    --cap-add SYS_PTRACE --security-opt seccomp=unconfined --privileged \
    -v ${HOME}:${HOME} -w "/work/verl" --shm-size 128G --name "${NAME}" "$IMG" tail -f /dev/null
srun --overlap --nodes=1 --ntasks=1 docker exec "${NAME}" \
    python3 examples/data_preprocess/gsm8k.py --local_dir /shared/gsm8k
srun --overlap --nodes=1 --ntasks=1 docker exec "${NAME}" \
    python3 -m verl.trainer.main_ppo \
    data.train_files=/shared/gsm8k/train.parquet \
    trainer.nnodes=${SLURM_NNODES} \
    trainer.n_gpus_per_node=${SLURM_GPUS_PER_NODE}
