#!/bin/bash
set -e
export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
export HF_HUB_ENABLE_HF_TRANSFER=1
pip install math-verify==0.8.0 "latex2sympy2>=1.9"
pip install -e .
git clone https://git.example/rewards.git /shared/rewards
huggingface-cli download Qwen/Qwen3-8B --local-dir /shared/models/q3
python3 examples/data_preprocess/gsm8k.py --local_save_dir /shared/gsm8k
wandb login $WANDB_API_KEY
python3 -m verl.trainer.main_ppo \
    data.train_files=/shared/gsm8k/train.parquet \
    actor_rollout_ref.model.path=/shared/models/q3 \
    custom_reward_function.path=/shared/rewards/score.py \
    trainer.n_gpus_per_node=4 trainer.nnodes=1
python3 -m verl.model_merger merge --backend fsdp --local_dir /shared/ckpt
