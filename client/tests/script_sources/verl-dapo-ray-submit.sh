#!/usr/bin/env bash
set -euxo pipefail
project=DAPO
exp_name='dapo-32b'
clip_low=0.2
clip_high=0.28
max_prompt=$((1024 * 2))
max_response=$((1024 * 20))
RAY_ADDRESS=${RAY_ADDRESS:-"http://localhost:8265"}
WORKING_DIR=${WORKING_DIR:-"${PWD}"}
RUNTIME_ENV=${RUNTIME_ENV:-"${WORKING_DIR}/verl/trainer/runtime_env.yaml"}
NNODES=${NNODES:-16}
HOME_DIR=${RAY_DATA_HOME:-"/shared/verl"}
MODEL=${MODEL:-"${HOME_DIR}/models/base-32b"}
ray job submit --no-wait --runtime-env="${RUNTIME_ENV}" \
    --working-dir "${WORKING_DIR}" \
    -- python3 -m recipe.dapo.main_dapo \
    data.max_prompt_length=${max_prompt} \
    data.max_response_length=${max_response} \
    actor_rollout_ref.actor.clip_ratio_low=${clip_low} \
    actor_rollout_ref.actor.clip_ratio_high=${clip_high} \
    actor_rollout_ref.model.path="${MODEL}" \
    trainer.project_name="${project}" \
    trainer.experiment_name="${exp_name}" \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes="${NNODES}"
