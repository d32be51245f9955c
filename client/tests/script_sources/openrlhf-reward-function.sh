WORK=${WORK:-/work}
cd $WORK
ray job submit -- python3 -m openrlhf.cli.train_ppo_ray \
   --actor.num_nodes 1 --actor.num_gpus_per_node 4 \
   --vllm.num_engines 4 --vllm.tensor_parallel_size 1 \
   --reward.remote_url $WORK/examples/python/reward_func.py \
   --actor.model_name_or_path Qwen/Qwen3-4B
