set -x
HF_MODEL_PATH=/models/q3-30b
DIST=/models/q3-30b-mcore
python scripts/converter_hf_to_mcore.py --hf_model_path $HF_MODEL_PATH --output_path $DIST
python3 -m verl.trainer.main_ppo --config-path=config --config-name=ppo_megatron_trainer \
    actor_rollout_ref.model.path=$HF_MODEL_PATH \
    actor_rollout_ref.actor.megatron.use_dist_checkpointing=True \
    actor_rollout_ref.actor.megatron.dist_checkpointing_path=$DIST \
    trainer.n_gpus_per_node=8 trainer.nnodes=4
