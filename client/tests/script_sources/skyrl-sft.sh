uv run --extra fsdp python -m skyrl.train.main_sft \
  strategy=fsdp \
  model.path=Qwen/Qwen2.5-0.5B-Instruct \
  placement.num_nodes=1 \
  placement.num_gpus_per_node=4 \
  batch_size=4
