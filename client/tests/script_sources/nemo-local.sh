export NRL_FORCE_REBUILD_VENVS=true
uv run python examples/run_grpo.py \
  --config examples/configs/grpo_math_1B.yaml \
  policy.model_name="meta/llama-1b" \
  checkpointing.checkpoint_dir="results/llama" \
  cluster.gpus_per_node=2
