#!/bin/bash
NODE_RANK=${PET_NODE_RANK}
if [ "$NODE_RANK" = "0" ]; then
    ray start --head --port=6379 --num-gpus=8
    sleep 30
    python3 -m verl.trainer.main_ppo \
        data.train_files=/data/a.parquet \
        actor_rollout_ref.model.path=/models/a \
        trainer.nnodes=4 trainer.n_gpus_per_node=8
else
    ray start --address="${MASTER_ADDR}:6379" --num-gpus=8 --block
fi
