set -x
MODEL="Qwen/Qwen3-4B"
NAME="async-$(date +%m%d)"
python3 -m openrlhf.cli.train_ppo_ray \
   --actor.num_nodes 1 --actor.num_gpus_per_node 4 \
   --ref.num_nodes 1 --ref.num_gpus_per_node 4 \
   --train.colocate_actor_ref --train.async_enable \
   --vllm.num_engines 4 --vllm.tensor_parallel_size 1 \
   --actor.model_name_or_path $MODEL \
   --logger.wandb.run_name "$NAME"
