read -r -d '' COMMAND <<EOF
cd /opt/nemo-rl
HF_HOME=/lustre/hf \
uv run python examples/nemo_gym/run_grpo_nemo_gym.py \
    ++cluster.num_nodes=16 \
    ++logger.wandb.name=gym
EOF
COMMAND=$COMMAND \
CONTAINER=/lustre/images/nemo.sqsh \
MOUNTS=/lustre:/lustre \
sbatch --nodes=16 --gres=gpu:4 --time=4:0:0 ray.sub
