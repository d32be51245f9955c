docker create --runtime=nvidia --gpus all --net=host --shm-size="10g" --cap-add=SYS_ADMIN -v .:/workspace/verl --name verl verlai/verl:vllm011 sleep infinity
docker start verl
docker exec -it -w /workspace/verl -e VLLM_USE_V1=1 verl bash -c "pip install --no-deps -e . && python3 -m verl.trainer.main_ppo data.train_files=/workspace/data.parquet trainer.nnodes=1 trainer.n_gpus_per_node=8"
