set -ex
export MASTER_ADDR=${MASTER_ADDR:-"127.0.0.1"}
ray start --head --node-ip-address ${MASTER_ADDR} --num-gpus 8
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"env_vars": {"NCCL_ALGO": "Ring"}}' \
   -- python3 train_async.py \
   --actor-num-nodes 1 --actor-num-gpus-per-node 2 \
   --rollout-num-gpus 6 --hf-checkpoint /root/small --rollout-batch-size 32
