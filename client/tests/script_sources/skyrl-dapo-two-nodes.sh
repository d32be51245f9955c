set -x
NODES=2
GPUS=8
export LD_LIBRARY_PATH="/opt/efa/lib:$LD_LIBRARY_PATH"
uv run --isolated --env-file .env --extra fsdp --with "flash-attn==2.8.3" -m examples.train.algorithms.dapo.main_dapo \
  trainer.placement.colocate_all=true \
  trainer.placement.policy_num_nodes=$NODES \
  trainer.placement.policy_num_gpus_per_node=$GPUS \
  generator.inference_engine.num_engines=4 \
  generator.inference_engine.tensor_parallel_size=4 \
  trainer.policy.model.path=Qwen/Qwen2.5-32B
