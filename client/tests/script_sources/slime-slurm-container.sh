#!/bin/bash
#SBATCH --job-name=slime-rl
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=128
#SBATCH --mem=1024G
#SBATCH --time=192:00:00
container_image=/lustre/images/slime.sqsh
container_name="slime-${SLURM_JOB_ID:-default}"
container_mounts=/lustre/a:/lustre/a,/home/b:/home/b
srun --overlap -N1 -n1 --container-image=$container_image --container-name=$container_name \
    --container-mounts=$container_mounts --container-writable \
    bash -c "cd /root/slime && python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate --hf-checkpoint /lustre/a/m"
