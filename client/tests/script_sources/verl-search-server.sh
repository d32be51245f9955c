#!/bin/bash
conda activate retriever
python search_r1/search/retrieval_server.py --index_path /data/e5.index --topk 3 &
sleep 60
conda activate verl
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
PYTHONUNBUFFERED=1 python3 -m verl.trainer.main_ppo \
    data.train_files=/data/nq/train.parquet \
    actor_rollout_ref.model.path=meta/llama-3b \
    trainer.n_gpus_per_node=8 trainer.nnodes=1 \
    retriever.url="http://127.0.0.1:8000/retrieve" 2>&1 | tee logs/search.log
