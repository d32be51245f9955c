#!/bin/bash
#SBATCH --job-name=open-r1
#SBATCH --nodes=4
#SBATCH --gres=gpu:8
#SBATCH --requeue
#SBATCH --time=3-00:00:00
module load cuda/12.4
source env/bin/activate
MODEL=""
ACCELERATOR="zero3"
while [[ $# -gt 0 ]]; do
  case $1 in
    --model) MODEL="$2"; shift 2 ;;
    *) echo "unknown"; exit 1 ;;
  esac
done
if [[ -z "$MODEL" ]]; then
  MODEL=Qwen2.5-Math
fi
NODES=($(scontrol show hostnames $SLURM_JOB_NODELIST))
MASTER=${NODES[0]}
WORLD=$(($SLURM_NNODES * 8))
export LAUNCHER="accelerate launch --config_file recipes/$ACCELERATOR.yaml \
    --num_machines $SLURM_NNODES --num_processes $WORLD --main_process_ip $MASTER --machine_rank \$SLURM_PROCID"
export CMD="src/open_r1/grpo.py --config recipes/$MODEL/config.yaml"
srun --wait=60 --kill-on-bad-exit=1 bash -c "$LAUNCHER $CMD" 2>&1
