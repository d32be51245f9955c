#SBATCH --nodes=4
#SBATCH --gres=gpu:a100:6
srun --nodes=1 --ntasks=1 python3 -m openrlhf.cli.train_ppo_ray \
   --actor_num_nodes 2 --actor_num_gpus_per_node 6 \
   --ref_num_nodes 2 --ref_num_gpus_per_node 6 --colocate_actor_ref \
   --vllm_num_engines 6 --vllm_tensor_parallel_size 2 --pretrain org/m
