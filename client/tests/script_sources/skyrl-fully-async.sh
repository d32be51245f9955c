NUM_POLICY=2
NUM_ENGINES=2
CUDA_LAUNCH_BLOCKING=0 uv run --isolated --extra vllm -m examples.fully_async.main_async \
  trainer.placement.colocate_all=false \
  trainer.placement.policy_num_gpus_per_node=$NUM_POLICY \
  generator.num_inference_engines=$NUM_ENGINES \
  generator.inference_engine_tensor_parallel_size=1 \
  trainer.run_name=async
