#!/bin/bash
# verl on 2 nodes, rendered by `rlt render --target ray`.
# /checkpoints is a folder that all nodes share. The network profile is amd-roce-mlx5.
#   bash SCRIPT head                on the first node, which is one of workers
#   bash SCRIPT worker-workers HEAD on each of the others
#   bash SCRIPT submit              on the first node
#   RAY_ADDRESS=http://HEAD:8265 bash SCRIPT submit
#                                   to a Ray cluster that runs already, and that other jobs use as well
set -euo pipefail
files=/checkpoints/configs/verl-11111111

start_node() {
  : "${WANDB_API_KEY:?set WANDB_API_KEY: the job reads it from a Secret}"
  export WANDB_API_KEY
  export GPU_MAX_HW_QUEUES=2
  export HF_HOME=/checkpoints/huggingface
  export HSA_NO_SCRATCH_RECLAIM=1
  export NCCL_CROSS_NIC=0
  export NCCL_IB_GID_INDEX=3
  export NCCL_IB_HCA=mlx5
  export NCCL_SOCKET_IFNAME='^lo,docker,veth,cni,cali,flannel,cilium'
  export PYTHONUNBUFFERED=1
  export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0
  export RAY_JOB_STOP_WAIT_TIME_S=295
  export RAY_USAGE_STATS_ENABLED=0
  export RAY_memory_monitor_refresh_ms=0
  export RCCL_MSCCL_ENABLE=0
  export TORCHINDUCTOR_CACHE_DIR=/checkpoints/cache/inductor
  export TORCH_NCCL_DUMP_ON_TIMEOUT=1
  export TORCH_NCCL_HIGH_PRIORITY=1
  export TORCH_NCCL_TRACE_BUFFER_SIZE=2000
  export TRITON_CACHE_DIR=/checkpoints/cache/triton
  export VLLM_CACHE_ROOT=/checkpoints/cache/vllm
  export WANDB_PROJECT=default
  export RAY_AUTH_MODE=token
  export RAY_AUTH_TOKEN_PATH="$files/ray-token"
  if [ ! -s "$RAY_AUTH_TOKEN_PATH" ]; then
    mkdir -p "$files"
    (umask 077 && head -c 32 /dev/urandom | base64 | tr -d '\n' > "$RAY_AUTH_TOKEN_PATH")
  fi
  ray start "$@"
}

case ${1:-} in
head)
  start_node \
    --head \
    --port=6379 \
    --dashboard-host=0.0.0.0 \
    --dashboard-port=8265 \
    --num-cpus=28 \
    --object-store-memory=82463372083 \
    --num-gpus=8
  ;;
worker-workers)
  start_node \
    --address="${2:?the address of the head}:6379" \
    --num-cpus=28 \
    --object-store-memory=82463372083 \
    --num-gpus=8
  ;;
submit)
mkdir -p /checkpoints/configs/verl-11111111
cat > /checkpoints/configs/verl-11111111/preflight.json <<'RLT_END_OF_FILE'
{
  "level": "basic",
  "head": {
    "name": "headgroup",
    "replicas": 1,
    "cpus": 0,
    "devices": 0,
    "shared_memory": 0,
    "device_memory": 0,
    "min_replicas": null
  },
  "workers": [
    {
      "name": "workers",
      "replicas": 2,
      "cpus": 28,
      "devices": 8,
      "shared_memory": 137438953472,
      "device_memory": 206158430208,
      "min_replicas": null
    }
  ],
  "head_service": "",
  "run_directory": "/checkpoints/runs/verl-11111111",
  "shared_storage": true,
  "require_rdma": false,
  "models": [],
  "data_files": [
    "/checkpoints/data/gsm8k/train.parquet"
  ],
  "repositories": [],
  "chat_template_of": null,
  "chat_template": null,
  "checkpoint_bytes": null,
  "export_bytes": null,
  "checkpoints": 0,
  "min_bus_bandwidth": null,
  "bfloat16": true,
  "trial": null,
  "engine": null,
  "framework_trial": null,
  "bucket": null,
  "objects": [],
  "endpoint": null,
  "not_possible": []
}
RLT_END_OF_FILE
cat > /checkpoints/configs/verl-11111111/program.sh <<'RLT_END_OF_FILE'
#!/bin/bash
set -e
# The programs of rlt: preflight, attempts, logs and diagnosis.
python3 -c 'import base64, bz2, sys; sys.stdout.buffer.write(bz2.decompress(base64.b85decode("".join(sys.stdin.read().split()))))' \
  < /checkpoints/configs/verl-11111111/rlt_pod.pyz.base85 > "/checkpoints/configs/verl-11111111/rlt_pod.pyz.$$"
mv "/checkpoints/configs/verl-11111111/rlt_pod.pyz.$$" /checkpoints/configs/verl-11111111/rlt_pod.pyz
exec python3 /checkpoints/configs/verl-11111111/rlt_pod.pyz supervise "$@" \
  --run-directory /checkpoints/runs/verl-11111111 \
  --preflight /checkpoints/configs/verl-11111111/preflight.json \
  --restarts 3 \
  --progress-deadline 3600 \
  --grace 300 \
  -- \
  --job verl \
  --namespace default \
  --run-directory /checkpoints/runs/verl-11111111 \
  --checkpoints /checkpoints/ppo \
  -- \
  python3 \
  -m \
  verl.trainer.main_ppo \
  data.train_files=/checkpoints/data/gsm8k/train.parquet \
  'trainer.logger=["console","wandb"]' \
  trainer.n_gpus_per_node=8 \
  trainer.nnodes=2 \
  trainer.default_local_dir=/checkpoints/ppo
RLT_END_OF_FILE
sed -n '1,/^# Programs of rlt: a zip archive in bzip2 and base85$/d; s/^#//p' "$0" > /checkpoints/configs/verl-11111111/rlt_pod.pyz.base85
  if [ -z "${RAY_ADDRESS:-}" ]; then
    export RAY_AUTH_MODE=token
    export RAY_AUTH_TOKEN_PATH="$files/ray-token"
    if [ ! -s "$RAY_AUTH_TOKEN_PATH" ]; then
      mkdir -p "$files"
      (umask 077 && head -c 32 /dev/urandom | base64 | tr -d '\n' > "$RAY_AUTH_TOKEN_PATH")
    fi
  fi
  ray job submit \
    --address="${RAY_ADDRESS:-http://127.0.0.1:8265}" \
    --submission-id="verl-$(date +%s)" \
    --runtime-env-json='{"env_vars": {"GPU_MAX_HW_QUEUES": "2", "HF_HOME": "/checkpoints/huggingface", "HSA_NO_SCRATCH_RECLAIM": "1", "NCCL_CROSS_NIC": "0", "NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "^lo,docker,veth,cni,cali,flannel,cilium", "PYTHONUNBUFFERED": "1", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0", "RAY_JOB_STOP_WAIT_TIME_S": "295", "RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0", "RCCL_MSCCL_ENABLE": "0", "TORCHINDUCTOR_CACHE_DIR": "/checkpoints/cache/inductor", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_HIGH_PRIORITY": "1", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TRITON_CACHE_DIR": "/checkpoints/cache/triton", "VLLM_CACHE_ROOT": "/checkpoints/cache/vllm", "WANDB_PROJECT": "default"}}' \
    -- \
    bash /checkpoints/configs/verl-11111111/program.sh
  ;;
*)
  echo "usage: bash $0 head | worker-workers HEAD | submit" >&2
  exit 2
  ;;
esac

# Programs of rlt: a zip archive in bzip2 and base85
#UHJvZ3JhbXM=
