set -x
export HCCL_CONNECT_TIMEOUT=1500
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files=/data/train.parquet \
    actor_rollout_ref.model.path=/models/q3-8b \
    trainer.n_gpus_per_node=16 \
    trainer.nnodes=2 \
    trainer.device=npu $@
