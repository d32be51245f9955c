"""Settings of verl, OpenRLHF and ROLL, in the shapes of published ones."""

from __future__ import annotations

from conversion import SETTINGS, VERL, WORKERS, Conversion

FRAMEWORKS = (
    Conversion(
        "optimizer, bypass mode and teacher of verl",
        f"{VERL} actor_rollout_ref.actor.optim.optimizer=AdamW algorithm.rollout_correction.bypass_mode=True "
        "distillation.enabled=True distillation.teacher_models.teacher_model.model_path=Qwen/Qwen3-8B",
        {
            "training.optimizer": "adamw",
            "algorithm.rolloutCorrection": {"bypassMode": True},
            "algorithm.distillation": {"modelPath": "Qwen/Qwen3-8B"},
        },
        to="builtin",
    ),
    Conversion(
        "OpenRLHF with shared devices",
        "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 8 "
        "--ref_num_nodes 1 --ref_num_gpus_per_node 8 --vllm_num_engines 4 --vllm_tensor_parallel_size 2 "
        "--colocate_all_models",
        {f"{WORKERS}.replicas": 1, f"{WORKERS}.accelerator.count": 8},
    ),
    Conversion(
        "OpenRLHF 0.11 with shared devices",
        "python3 -m openrlhf.cli.train_ppo_ray --train.colocate_all --actor.num_nodes=2 --ref.num_nodes=2 "
        "--actor.num_gpus_per_node=4 --ref.num_gpus_per_node=4 --vllm.num_engines=4 --vllm.tensor_parallel_size=2",
        {f"{WORKERS}.replicas": 1, f"{WORKERS}.accelerator.count": 8},
    ),
    Conversion(
        "OpenRLHF with devices for each role",
        "python -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 4 --ref_num_nodes 1 "
        "--ref_num_gpus_per_node 2 --critic_num_nodes 1 --critic_num_gpus_per_node 4 --reward_num_nodes 1 "
        "--reward_num_gpus_per_node 2 --vllm_num_engines 2 --vllm_tensor_parallel_size 2",
        {f"{WORKERS}.replicas": 2, f"{WORKERS}.accelerator.count": 8},
        ("devices of the roles: together 16",),
    ),
    Conversion("another program", "torchrun --nproc-per-node 8 train.py --lr 1e-6", last=("train.py", "--lr", "1e-6")),
    Conversion(
        "GRPO with a KL loss",
        f"{VERL} {SETTINGS} algorithm.adv_estimator=grpo actor_rollout_ref.actor.use_kl_loss=True "
        "actor_rollout_ref.actor.kl_loss_coef=0.002 actor_rollout_ref.rollout.n=5 trainer.total_training_steps=100 "
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.1 algorithm.kl_ctrl.kl_coef=0.001",
        {
            "algorithm": {"advEstimator": "grpo", "klLossCoef": 0.002},
            "rollout.responsesPerPrompt": 5,
            "training.lrSchedule.warmupSteps": 10,
            "data.maxPromptLength": 512,
            "data.files": ["/d/train.parquet"],
        },
        ("algorithm.kl_ctrl.kl_coef=0.001: it has no effect without algorithm.use_kl_in_reward",),
        "builtin",
    ),
    Conversion(
        "GRPO with verl's default of the KL loss",
        f"{VERL} {SETTINGS} algorithm.adv_estimator=grpo actor_rollout_ref.actor.use_kl_loss=True "
        "actor_rollout_ref.rollout.n=5",
        {"algorithm": {"advEstimator": "grpo", "klLossCoef": 0.001}},
        (),
        "builtin",
    ),
    Conversion(
        "DAPO",
        f"{VERL} {SETTINGS} actor_rollout_ref.rollout.n=16 algorithm.adv_estimator=grpo "
        "algorithm.filter_groups.enable=True "
        "algorithm.filter_groups.metric=acc actor_rollout_ref.actor.clip_ratio_high=0.28 data.truncation='left' "
        "+reward.reward_kwargs.overlong_buffer_cfg.enable=True +reward.reward_kwargs.overlong_buffer_cfg.len=512 "
        "reward.reward_manager.name=dapo",
        {
            "algorithm.filterGroups.metric": "acc",
            "algorithm.clipRatioHigh": 0.28,
            "data.overlongPrompts": "left",
            "algorithm.overlongBuffer.length": 512,
        },
        ("reward.reward_manager.name=dapo: ",),
        "builtin",
    ),
    Conversion(
        "PPO with a critic",
        f"{VERL} {SETTINGS} critic.optim.lr=1e-5 critic.model.fsdp_config.param_offload=True",
        {
            "algorithm": {"advEstimator": "gae", "critic": {"learningRate": 1e-5, "paramOffload": True}},
            "rollout.responsesPerPrompt": 1,
        },
        (),
        "builtin",
    ),
    Conversion(
        "LoRA and a list",
        f"{VERL} {SETTINGS} actor_rollout_ref.model.lora_rank=32 "
        "actor_rollout_ref.model.target_modules=all-linear \"data.val_files=['/d/a.parquet','/d/b.parquet']\" "
        "trainer.save_freq=-1 actor_rollout_ref.rollout.name=sglang",
        {
            "model.lora": {"rank": 32, "targetModules": ["all-linear"]},
            "evaluation": [
                {"name": "validation", "data": {"files": ["/d/a.parquet", "/d/b.parquet"]}, "beforeTrain": True}
            ],
        },
        ("actor_rollout_ref.rollout.name=sglang: spec.rollout.engine does not take this value",),
        "builtin",
    ),
    Conversion(
        "Hydra's config",
        "defaults: [ppo_trainer]\ndata:\n  train_batch_size: 64\n  train_files: [/d/a.parquet]\n  my: {key: a b}\n"
        "actor_rollout_ref:\n  model: {path: /m/q}\n  actor: {ppo_mini_batch_size: '${data.train_batch_size}'}\n"
        "trainer: {nnodes: 2, n_gpus_per_node: 4, experiment_name: q}\n",
        {f"{WORKERS}.replicas": 2, f"{WORKERS}.accelerator.count": 4},
        ("actor_rollout_ref.actor.ppo_mini_batch_size: ${data", 'defaults ["ppo_trainer"]: it belongs to Hydra'),
        last=(
            "data.train_batch_size=64",
            "data.train_files=[/d/a.parquet]",
            '++data.my.key="a b"',
            "actor_rollout_ref.model.path=/m/q",
            "trainer.nnodes=2",
            "trainer.n_gpus_per_node=4",
            "trainer.experiment_name=q",
        ),
    ),
    Conversion(
        "ROLL's config",
        "exp_name: rlvr\nnum_nodes: 2\nnum_gpus_per_node: 8\npretrain: /m/q\nrollout_batch_size: 64\n"
        "actor_train: {training_args: {learning_rate: 1.0e-6}}\nsystem_envs: {NCCL_DEBUG: WARN}\n",
        {
            f"{WORKERS}.replicas": 2,
            "framework.workingDirectory": "/workspace/ROLL",
            "cluster.env": [
                {"name": "NCCL_DEBUG", "value": "WARN"},
                {"name": "PYTHONPATH", "value": "/workspace/ROLL"},
            ],
        },
        ("the file source",),
        last=("python3", "examples/start_rlvr_pipeline.py"),
    ),
    Conversion(
        "ROLL's config with too few devices",
        "num_nodes: 1\nnum_gpus_per_node: 8\npretrain: /m/q\nactor_train: {device_mapping: 'list(range(0,16))'}\n",
        {f"{WORKERS}.replicas": 1},
        ("actor_train.device_mapping list(range(0,16)): names device 15, and the job has 8",),
    ),
    Conversion(
        "a validation of verl without files",
        f"{VERL} data.train_files=/d/a.parquet actor_rollout_ref.model.path=/m/q trainer.test_freq=5",
        left_out=('evaluation {"every": 5, "beforeTrain": true}: it has no files: set spec.evaluation[].data',),
        to="builtin",
    ),
    Conversion(
        "a validation of verl that never runs",
        f"{VERL} {SETTINGS} trainer.test_freq=-1 trainer.val_before_train=False",
        left_out=("evaluation ",),
        to="builtin",
    ),
    Conversion(
        "a validation of verl",
        f"{VERL} {SETTINGS} trainer.test_freq=5 trainer.val_before_train=False "
        "actor_rollout_ref.rollout.val_kwargs.n=4 actor_rollout_ref.rollout.val_kwargs.temperature=0.6",
        {
            "evaluation[].name": "validation",
            "evaluation[].data": {"files": ["/d/test.parquet"]},
            "evaluation[].every": 5,
            "evaluation[].beforeTrain": False,
            "evaluation[].responsesPerPrompt": 4,
            "evaluation[].temperature": 0.6,
        },
        to="builtin",
    ),
    Conversion(
        "an unknown setting",
        f"{VERL} {SETTINGS} critic.optim.lr=1e-5 data.train_batch_sizes=64",
        left_out=("data.train_batch_sizes=64: it is not a known setting; did you mean data.train_batch_size?",),
        to="builtin",
    ),
    Conversion(
        "ROLL's settings",
        "pretrain: /m/q\nrollout_batch_size: 64\nnum_return_sequences_in_group: 8\nmax_steps: 50\n"
        "adv_estimator: grpo\nactor_train:\n  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: 2}\n"
        "  strategy_args: {strategy_name: megatron_train}\nactor_infer: {strategy_args: {strategy_name: vllm}}\n",
        {
            "model.path": "/m/q",
            "training.trainBatchSize": 64,
            "rollout.responsesPerPrompt": 8,
            "training.totalSteps": 50,
            "training.learningRate": 1e-6,
            "rollout.engine": "vllm",
        },
        ("actor_train.strategy_args.strategy_name=megatron_train: spec.training.strategy does not",),
        "builtin",
    ),
    Conversion(
        "a command of verl as fields and overrides",
        f"{VERL} {SETTINGS} trainer.nnodes=2 actor_rollout_ref.actor.shuffle=True "
        "actor_rollout_ref.rollout.name=sglang",
        {
            "framework": {
                "type": "verl",
                "overrides": ["actor_rollout_ref.actor.shuffle=True", "actor_rollout_ref.rollout.name=sglang"],
            },
            "data.files": ["/d/train.parquet"],
            "training.ppoMiniBatchSize": 64,
            "rollout.responsesPerPrompt": 1,  # verl's default
            "training.ppoMicroBatchSizePerDevice": 4,
            f"{WORKERS}.replicas": 2,
        },
        to="verl",
    ),
    Conversion(
        "verl 0.5, a repeated and an unknown setting",
        f"{VERL} {SETTINGS} data.train_batch_size=512 actor_rollout_ref.actor.optim.warmup_style=cosine x.y=$HOME/a",
        {
            "framework": {"type": "verl", "version": "0.5"},
            "training.trainBatchSize": 512,
            "training.lrSchedule.type": "cosine",
        },
        ("line 1: x.y=$HOME/a: its value is not in the script",),
        to="verl",
    ),
)
