set -x
export VLLM_ATTENTION_BACKEND=FLASH_ATTN
export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False"
ulimit -n 1048576
RLLM_DIR=$(python3 -c "import rllm; print(rllm.__path__[0])")
python3 -m examples.swe.train_agent \
    data.train_files=${RLLM_DIR}/data/swe.parquet \
    trainer.nnodes=8 trainer.n_gpus_per_node=8
