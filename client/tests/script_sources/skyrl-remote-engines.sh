uv run --isolated --extra vllm -m skyrl_train.inference_engines.vllm.vllm_server --model Qwen/Q --port 8001 &
uv run --isolated --extra vllm -m skyrl_train.entrypoints.main_base \
  trainer.placement.colocate_all=false \
  trainer.placement.policy_num_gpus_per_node=4 \
  generator.run_engines_locally=False \
  generator.remote_inference_engine_urls="['127.0.0.1:8001']"
