for size in 1.7B 4B; do
  for seed in 1 2; do
    python3 -m verl.trainer.main_ppo \
        actor_rollout_ref.model.path=/models/qwen3-${size,,} \
        data.seed=$seed \
        trainer.experiment_name=sweep-$size-$seed \
        trainer.n_gpus_per_node=8
  done
done
