#SBATCH --nodes=1
#SBATCH --gpus=8
#SBATCH --cpus-per-gpu=8
#SBATCH --mem-per-gpu=64G
srun --container-image=nvcr.io/nvidia/nemo-rl:v0.5.0 uv run examples/run_sft.py --config examples/configs/sft.yaml
