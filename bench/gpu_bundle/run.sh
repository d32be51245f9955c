#!/bin/sh
# Runs the checks with the packages of the bundle. PYTHON: the interpreter that has torch, default python3.
here=$(cd "$(dirname "$0")" && pwd)
sources=$here/sources
export PYTHONPATH="$sources/bench:$sources/trainer:$sources/api:$sources/pod:$sources/trainer/tests:$sources/trainer/oracles:$here/packages:$here/engine"
export VLLM_USE_FLASHINFER_SAMPLER=0 # the bundle does not have flashinfer
exec "${PYTHON:-python3}" -m gpu_check --commit "$(cat "$here/COMMIT")" --output gpu-check-results "$@"
