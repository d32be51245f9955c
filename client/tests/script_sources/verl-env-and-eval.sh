#!/usr/bin/env bash
set -o pipefail
ENV_FILE=.env
[ -f "$ENV_FILE" ] && source "$ENV_FILE"
: "${MODEL:=/models/default}"
: "${BATCH:=128}"
CMD="python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=$MODEL data.train_batch_size=$BATCH trainer.nnodes=1"
CMD+=" trainer.n_gpus_per_node=8"
echo "$CMD"
eval "$CMD" > train.log 2>&1
