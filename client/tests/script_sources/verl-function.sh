#!/bin/bash
log() { echo "[$(date +%T)] $*"; }
train() {
    local model=$1
    local name="$2"
    shift 2
    log "training $name"
    python3 -m verl.trainer.main_ppo \
        actor_rollout_ref.model.path="$model" \
        trainer.experiment_name="$name" \
        trainer.nnodes=1 trainer.n_gpus_per_node=2 "$@"
}
evaluate() {
    python3 eval.py --model "$1"
}
train /models/base first data.train_batch_size=64 'data.train_files=/data/a b.parquet'
