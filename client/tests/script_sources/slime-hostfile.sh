#!/bin/bash
if [ -z "${MASTER_ADDR}" ]; then
  echo "MASTER_ADDR is not set"
  exit 1
fi
NODES=8
ray start --head --node-ip-address ${MASTER_ADDR} --num-gpus 8
for WORKER in $(awk '{print $1}' /root/mpi_hosts); do
  if [[ "$WORKER" == "$MASTER_ADDR" ]]; then
    continue
  fi
  ssh root@"${WORKER}" "ray stop --force; ray start --address=${MASTER_ADDR}:6379 --num-gpus 8" &
done
wait
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py \
  --actor-num-nodes $NODES --actor-num-gpus-per-node 8 --colocate --hf-checkpoint /root/glm
