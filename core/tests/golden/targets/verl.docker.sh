#!/bin/bash
# verl on 2 nodes, rendered by `rlt render --target docker`.
# /checkpoints is a folder that all nodes share. The network profile is amd-roce-mlx5.
#   bash SCRIPT head                on the first node, which is one of workers
#   bash SCRIPT worker-workers HEAD on each of the others
#   bash SCRIPT submit              on the first node
#   bash SCRIPT stop                on every node
set -euo pipefail
files=/checkpoints/configs/verl-11111111
container=verl-11111111
: "${WANDB_API_KEY:?set WANDB_API_KEY: the job reads it from a Secret}"
export WANDB_API_KEY
export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN_PATH="$files/ray-token"
if [ ! -s "$RAY_AUTH_TOKEN_PATH" ]; then
  mkdir -p "$files"
  (umask 077 && head -c 32 /dev/urandom | base64 | tr -d '\n' > "$RAY_AUTH_TOKEN_PATH")
fi

start_node() {
  docker run --detach --rm --init \
    --name="$container" \
    --user="$(id -u):$(id -g)" \
    --network=host \
    --shm-size=137438953472 \
    --ulimit=memlock=-1 \
    --ulimit=stack=67108864 \
    --ulimit=nofile=65536 \
    --device=/dev/kfd \
    --device=/dev/dri \
    --device=/dev/infiniband \
    --group-add=video \
    --group-add="$(getent group render | cut -d: -f3)" \
    --group-add=109 \
    --volume=/checkpoints:/checkpoints \
    --env=GPU_MAX_HW_QUEUES=2 \
    --env=HF_HOME=/checkpoints/huggingface \
    --env=HOME=/tmp \
    --env=HSA_NO_SCRATCH_RECLAIM=1 \
    --env=LOGNAME=rlt \
    --env=NCCL_CROSS_NIC=0 \
    --env=NCCL_IB_GID_INDEX=3 \
    --env=NCCL_IB_HCA=mlx5 \
    --env=NCCL_SOCKET_IFNAME='^lo,docker,veth,cni,cali,flannel,cilium' \
    --env=PYTHONUNBUFFERED=1 \
    --env=RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 \
    --env=RAY_JOB_STOP_WAIT_TIME_S=295 \
    --env=RAY_USAGE_STATS_ENABLED=0 \
    --env=RAY_memory_monitor_refresh_ms=0 \
    --env=RCCL_MSCCL_ENABLE=0 \
    --env=TORCHINDUCTOR_CACHE_DIR=/checkpoints/cache/inductor \
    --env=TORCH_NCCL_DUMP_ON_TIMEOUT=1 \
    --env=TORCH_NCCL_HIGH_PRIORITY=1 \
    --env=TORCH_NCCL_TRACE_BUFFER_SIZE=2000 \
    --env=TRITON_CACHE_DIR=/checkpoints/cache/triton \
    --env=USER=rlt \
    --env=VLLM_CACHE_ROOT=/checkpoints/cache/vllm \
    --env=WANDB_PROJECT=default \
    --env=WANDB_API_KEY \
    --env=RAY_AUTH_MODE \
    --env=RAY_AUTH_TOKEN_PATH \
    --entrypoint=ray registry.example/verl:rocm start "$@" \
    --block
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
  docker exec "$container" ray job submit \
    --submission-id="verl-$(date +%s)" -- bash /checkpoints/configs/verl-11111111/program.sh
  ;;
stop)
  docker stop --time=300 "$container"
  ;;
*)
  echo "usage: bash $0 head | worker-workers HEAD | submit | stop" >&2
  exit 2
  ;;
esac

# Programs of rlt: a zip archive in bzip2 and base85
#UHJvZ3JhbXM=
