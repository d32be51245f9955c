set -x
N=2
python3 -m recipe.one_step_off_policy.main_ppo \
    --config-name=one_step_off_ppo_trainer.yaml \
    actor_rollout_ref.hybrid_engine=False \
    trainer.nnodes=$N trainer.n_gpus_per_node=8 \
    rollout.nnodes=$N rollout.n_gpus_per_node=8
