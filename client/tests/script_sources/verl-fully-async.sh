#!/usr/bin/env bash
NNODES=${NNODES:-1}
GPUS=${GPUS:-8}
engines=6
trainers=$((GPUS - engines))
python -m verl.experimental.fully_async_policy.fully_async_main \
    --config-path=config \
    data.train_batch_size=0 \
    actor_rollout_ref.hybrid_engine=False \
    actor_rollout_ref.model.path=/models/q7b \
    trainer.nnodes=${NNODES} trainer.n_gpus_per_node=${trainers} \
    rollout.nnodes=${NNODES} rollout.n_gpus_per_node=${engines} \
    rollout.total_rollout_steps=$((256 * 20))
