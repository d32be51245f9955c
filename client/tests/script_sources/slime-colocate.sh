#!/bin/bash
pkill -9 sglang
ray stop --force
set -ex
export PYTHONUNBUFFERED=1
LINKS=$(nvidia-smi topo -m 2>/dev/null | grep -o 'NV[0-9]*' | wc -l)
if [ "$LINKS" -gt 0 ]; then
    HAS_NVLINK=1
else
    HAS_NVLINK=0
fi
SCRIPT_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${SCRIPT_DIR}/models/qwen3-4B.sh"
CKPT_ARGS=(
   --hf-checkpoint /root/q3-4b
   # --load /root/other
   --save /root/q3-4b-slime/
)
WANDB_ARGS=(
   # --use-wandb
)
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 2
   --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 64)
)
ray start --head --node-ip-address ${MASTER_ADDR:-127.0.0.1} --num-gpus 4 --disable-usage-stats
RUNTIME_ENV_JSON="{
  \"env_vars\": {
    \"PYTHONPATH\": \"/root/Megatron-LM/\",
    \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\",
    \"NCCL_NVLS_ENABLE\": \"${HAS_NVLINK}\"
  }
}"
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json="${RUNTIME_ENV_JSON}" \
   -- python3 train.py \
   --actor-num-nodes 1 --actor-num-gpus-per-node 4 --colocate \
   ${MODEL_ARGS[@]} ${CKPT_ARGS[@]} ${WANDB_ARGS[@]} ${SGLANG_ARGS[@]}
