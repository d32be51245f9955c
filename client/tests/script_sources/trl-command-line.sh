export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx
trl grpo --model_name_or_path Qwen/Qwen3-0.6B --dataset_name org/prompts --reward_funcs accuracy_reward \
    --num_processes 2 --output_dir /ckpt/grpo --use_vllm --vllm_mode colocate
