set -x
ENV=visgym
uv run --isolated --extra fsdp examples/train/$ENV/main_$ENV.py \
  trainer.placement.policy_num_gpus_per_node=8 \
  trainer.policy.model.path=org/vl
