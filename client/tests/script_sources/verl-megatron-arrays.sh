#!/usr/bin/env bash
set -euo pipefail
NODES=${NODES:-4}
TP=${TP:-4}
PP=$((NODES / 2))
LENGTH=$((2 * 1024))
MODEL=(
    # the model and its checkpoint
    actor_rollout_ref.model.path=${HF_MODEL:-/models/moe}
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=$TP
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=$PP
)
DATA=(
    data.train_files="['/data/a.parquet', '/data/b.parquet']"
    data.max_response_length=$LENGTH
)
if [ "$TP" -gt 8 ]; then
    DATA+=(data.shuffle=False)
fi
python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer \
    "${MODEL[@]}" \
    "${DATA[@]}" \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=$NODES
