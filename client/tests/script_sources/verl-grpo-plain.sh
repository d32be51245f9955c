set -x

export VLLM_USE_V1=1

python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files=/data/math/train.parquet \
    data.val_files=/data/math/val.parquet \
    data.train_batch_size=512 \
    actor_rollout_ref.model.path=Qwen/Qwen3-4B \
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \
    actor_rollout_ref.rollout.n=8 \
    trainer.logger='["console","wandb"]' \
    trainer.experiment_name=math_4b \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1 $@
