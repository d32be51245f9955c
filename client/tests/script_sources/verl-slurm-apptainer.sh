#!/bin/bash
#SBATCH --job-name=ppo-ray
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --mem=400G
#SBATCH --partition=gpu
#SBATCH --time=02:30:00
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=48
#SBATCH --output=out-%j.txt

workdir=/work/verl
image=/work/images/verl.sif
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
host_array=("$hosts")
first=${host_array[0]}
address=$(srun --nodes=1 --ntasks=1 -w "$first" hostname --ip-address)
if [[ "$address" == *" "* ]]; then
    address=${address%% *}
fi
port=6379
export ip_head=$address:$port
srun --nodes=1 --ntasks=1 -w "$first" \
    apptainer run --nv --bind $workdir $image \
    ray start --head --node-ip-address="$address" --port=$port \
    --num-cpus "${SLURM_CPUS_PER_TASK}" --num-gpus "${SLURM_GPUS_PER_NODE}" --block &
sleep 10
others=$((SLURM_JOB_NUM_NODES - 1))
for ((i = 1; i <= others; i++)); do
    srun --nodes=1 --ntasks=1 -w "${host_array[$i]}" \
        apptainer run --nv --bind $workdir $image \
        ray start --address "$ip_head" --num-gpus "${SLURM_GPUS_PER_NODE}" --block &
    sleep 5
done
PYTHONUNBUFFERED=1 srun --overlap --nodes=1 --ntasks=1 -w "$first" \
    apptainer run --nv --bind $workdir $image \
    python3 -m verl.trainer.main_ppo \
    data.train_files=/work/data/train.parquet \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct \
    trainer.n_gpus_per_node="${SLURM_GPUS_PER_NODE}" \
    trainer.nnodes="${SLURM_NNODES}" 2>&1 | tee run.log
