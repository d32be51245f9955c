"""Small sources in the shapes of published ones, each with what the job must have and what must be left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

VERL = "python3 -m verl.trainer.main_ppo"
WORKERS = "cluster.workers[]"
SETTINGS = (
    "data.train_files=/d/train.parquet data.val_files=/d/test.parquet data.train_batch_size=256 "
    "actor_rollout_ref.model.path=/m/qwen actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"
)


@dataclass(frozen=True)
class Conversion:
    name: str
    source: str
    fields: dict[str, Any] = field(default_factory=dict)
    """Path of a field -> its value."""
    left_out: tuple[str, ...] = ()
    """Beginnings of notes."""
    to: str = "command"
    last: tuple[str, ...] = ()
    """The end of the command."""


CONVERSIONS = (
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
        "one line",
        f"{VERL} trainer.nnodes=2 trainer.n_gpus_per_node=4",
        {f"{WORKERS}.replicas": 2, f"{WORKERS}.accelerator": {"count": 4, "resourceName": "nvidia.com/gpu"}},
        last=("trainer.nnodes=2", "trainer.n_gpus_per_node=4"),
    ),
    Conversion(
        "line continuations",
        f"set -x\n{VERL} \\\n  data.train_batch_size=64 \\\n  trainer.nnodes=1\n",
        last=("data.train_batch_size=64", "trainer.nnodes=1"),
    ),
    Conversion(
        "variables",
        f"M=/m/qwen\n{VERL} a.path=$M b.path=\"${{M}}-v2\" c='$M'",
        last=("a.path=/m/qwen", "b.path=/m/qwen-v2", "c=$M"),
    ),
    Conversion(
        "defaults",
        f"B=${{B:-32}}\nR=${{R:-${{B}}}}\n{VERL} data.train_batch_size=$B x=$R",
        last=("data.train_batch_size=32", "x=32"),
    ),
    Conversion("arithmetic", f"P=512\nR=$((P * 2))\n{VERL} l=$((P + R))", last=("l=1536",)),
    Conversion("arrays", f'A=(\n x=1 # one\n "y=a b"\n)\n{VERL} "${{A[@]}}" z=3', last=("x=1", "y=a b", "z=3")),
    Conversion("an array that grows", f'A=(x=1)\nA+=(y=2)\n{VERL} "${{A[@]}}"', last=("x=1", "y=2")),
    Conversion(
        "arguments of the script",
        f'{VERL} x=1 "$@" 2>&1 | tee run.log',
        last=("x=1",),
        left_out=('line 1: "$@": the job has no arguments',),
    ),
    Conversion(
        "arguments after the pipe",
        f"{VERL} x=1 2>&1 | tee a.log \\\n  trainer.resume_mode=disable",
        last=("x=1",),
        left_out=("line 1: trainer.resume_mode=disable: it is an argument of tee",),
    ),
    Conversion(
        "preparation before the training", f"pip install -e .\npython3 prepare/download.py\n{VERL} x=1\n", last=("x=1",)
    ),
    Conversion(
        "ray job submit",
        f"RAY_ADDRESS=http://h:8265 ray job submit --working-dir . --no-wait -- {VERL} x=1",
        last=("x=1",),
        left_out=("line 1: ray job submit --working-dir .",),
    ),
    Conversion(
        "variables of the environment",
        f"export WANDB_API_KEY=k\nexport NCCL_DEBUG=INFO\nA=1 {VERL} x=1",
        {"cluster.env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "A", "value": "1"}]},
        ("line 1: WANDB_API_KEY: put it into a Secret",),
    ),
    Conversion(
        "network variables",
        f"export NCCL_IB_HCA=mlx5_0,mlx5_1 NCCL_IB_GID_INDEX=3 GLOO_SOCKET_IFNAME=eth0\n{VERL} x=1",
        {"network.hcas": ["mlx5_0", "mlx5_1"], "network.socketInterface": "eth0"},
        ("line 1: NCCL_IB_GID_INDEX=3: the network profile sets it",),
    ),
    Conversion(
        "a value that only the machine has",
        f"{VERL} data.train_files=$HOME/d.parquet",
        {"framework.command": ["bash", "-c", f'{VERL} "data.train_files=$HOME/d.parquet"']},
        ("line 1: value of HOME: it is not in the script",),
    ),
    Conversion(
        "a condition",
        f"if [ -z $X ]; then\n export M=a\nelse\n export M=b\nfi\n{VERL} x=$M",
        last=("x=a",),
        left_out=("line 4: variable M: it is set in a condition",),
    ),
    Conversion("a here-document", f"cat > c.yaml <<'EOF'\nit's: [\nEOF\n{VERL} x=1", last=("x=1",)),
    Conversion(
        "docker run",
        f"docker run --rm --gpus all --shm-size=10g -e A=1 -v /d:/d -w /w img:1 {VERL} x=1",
        {"cluster.image": "img:1", f"{WORKERS}.resources.sharedMemory": "10Gi", "framework.workingDirectory": "/w"},
        ("line 1: docker run -v /d:/d: use spec.storage.claimName",),
        last=("x=1",),
    ),
    Conversion(
        "wrappers around the program",
        f"sudo -E env A=1 docker run -itd -u 1000 --name=c img:2 nohup {VERL} x=1 &",
        {"cluster.image": "img:2", "cluster.env": [{"name": "A", "value": "1"}]},
        ("line 1: docker run -u 1000: no counterpart",),
        last=("x=1",),
    ),
    Conversion(
        "sbatch with apptainer",
        f"#!/bin/bash\n#SBATCH -J qwen_7b\n#SBATCH -N 4\n#SBATCH --gres=gpu:h100:8\n#SBATCH -t 1-12:00:00  # days\n"
        f"#SBATCH -p batch\n#SBATCH --mem=900G\n#SBATCH -c 64\n"
        f"srun apptainer exec --nv verl.sif {VERL} trainer.nnodes=$SLURM_NNODES",
        {
            f"{WORKERS}.replicas": 4,
            f"{WORKERS}.accelerator.count": 8,
            "activeDeadlineSeconds": 129600,
            f"{WORKERS}.resources": {"memory": "900Gi", "cpu": "64"},
            "cluster.image": "verl.sif",
        },
        ("line 6: #SBATCH --partition=batch: Slurm's queues",),
        last=("trainer.nnodes=4",),
    ),
    Conversion(
        "several options in a line",
        f"#SBATCH -N2 --job-name 'my job' --gpus-per-node=4 # all\n{VERL} trainer.n_gpus_per_node=4",
        {f"{WORKERS}.replicas": 2, f"{WORKERS}.accelerator.count": 4},
        last=("trainer.n_gpus_per_node=4",),
    ),
    Conversion(
        "sbatch on fewer nodes than the program",
        f"#SBATCH --nodes=1\n{VERL} trainer.nnodes=2",
        {f"{WORKERS}.replicas": 2},
        ("1 nodes of Slurm: the program uses 2",),
    ),
    Conversion(
        "AMD devices",
        f"docker run --device /dev/kfd --device=/dev/dri rocm/verl:1 {VERL} trainer.n_gpus_per_node=8",
        {f"{WORKERS}.accelerator": {"count": 8, "resourceName": "amd.com/gpu"}},
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
            "data.valFiles": ["/d/a.parquet", "/d/b.parquet"],
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
        ("actor_rollout_ref.actor.ppo_mini_batch_size: ${data", "defaults: it belongs to Hydra"),
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
        "RayCluster",
        """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  rayVersion: 2.46.0
  enableInTreeAutoscaling: true
  headGroupSpec:
    rayStartParams: {}
    template: {spec: {containers: [{name: h, image: i:1, resources: {limits: {cpu: "2", memory: 8Gi}}}]}}
  workerGroupSpecs:
    - {groupName: big, replicas: 3, maxReplicas: 5, template: {spec: {nodeSelector: {a: b}, containers: [{name: w,
       image: i:1, env: [{name: A, value: "1"}], resources: {limits: {cpu: "8", memory: 64Gi, nvidia.com/gpu: 4,
       rdma/hca: 1}}}], volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]}}}
""",
        {
            "cluster.image": "i:1",
            "cluster.head.resources": {"cpu": "2", "memory": "8Gi"},
            "scheduling.queueName": "q",
            WORKERS: {
                "name": "big",
                "replicas": 3,
                "nodeSelector": {"a": "b"},
                "resources": {"cpu": "8", "memory": "64Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 4},
            },
        },
        (
            "spec.enableInTreeAutoscaling: a job has a fixed number",
            "the program: a RayCluster has none",
            "spec.workerGroupSpecs[0].template.spec.volumes d: set spec.storage.claimName: c",
            "spec.workerGroupSpecs[0].template.spec.containers[0].resources rdma/hca",
        ),
    ),
    Conversion(
        "RayJob",
        """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: j}
spec:
  entrypoint: python3 -m verl.trainer.main_ppo trainer.nnodes=1
  runtimeEnvYAML: "env_vars: {A: '1'}\\npip: [x]"
  shutdownAfterJobFinishes: true
  backoffLimit: 2
  ttlSecondsAfterFinished: 60
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{image: i}]}}}
    workerGroupSpecs: [{groupName: w, replicas: 1, template: {spec: {containers: [{image: i,
      resources: {limits: {cpu: 1, memory: 2Gi}}}]}}}]
""",
        {
            "failurePolicy.maxRestarts": 2,
            "ttlSecondsAfterFinished": 60,
            f"{WORKERS}.resources": {"cpu": "1", "memory": "2Gi"},
            "cluster.env": [{"name": "A", "value": "1"}],
        },
        ("runtimeEnvYAML pip: install it",),
        last=("trainer.nnodes=1",),
    ),
    Conversion(
        "TrainJob",
        """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    {image: i, command: [torchrun, train.py], numNodes: 2, numProcPerNode: 8,
     env: [{name: T, valueFrom: {secretKeyRef: {name: s, key: k}}}],
     resourcesPerNode: {limits: {cpu: 8, memory: 64Gi, nvidia.com/gpu: 8}}}
""",
        {
            f"{WORKERS}.replicas": 2,
            f"{WORKERS}.accelerator.count": 8,
            "framework.command": ["torchrun", "train.py"],
            "cluster.env": [{"name": "T", "secretKeyRef": {"name": "s", "key": "k"}}],
        },
        ("spec.runtimeRef torch-distributed", "torchrun: ", "spec.trainer.numProcPerNode"),
    ),
    Conversion(
        "PyTorchJob",
        """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: p}
spec:
  nprocPerNode: "4"
  runPolicy: {cleanPodPolicy: None, backoffLimit: 1, schedulingPolicy: {queue: q}}
  pytorchReplicaSpecs:
    Master: {replicas: 1, restartPolicy: OnFailure, template: {spec: {containers: [{name: pytorch, image: i,
      command: [python3, train.py], args: ["--epochs=1"],
       resources: {limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 4}}}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{name: pytorch, image: i, command: [python3, train.py]}]}}}
""",
        {f"{WORKERS}.replicas": 4, f"{WORKERS}.accelerator.count": 4, "failurePolicy.maxRestarts": 1},
        ("spec.nprocPerNode: torchrun", "spec.runPolicy.schedulingPolicy: no counterpart"),
        last=("train.py", "--epochs=1"),
    ),
)

CONVERSIONS += (
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

UNREADABLE = {
    'A="x\npython3 train.py': 'line 1: the quote " is not closed',
    "x=1\npython3 train.py $(date": "line 2: ( is not closed",
    "A=1\necho hello": "line 2: the script ends without a training program. Understood: 1 variables, and "
    "the commands echo",
    "": "line 1: source is empty",
    "a: 1\nb: 2": "line 1: source is YAML with the keys a, b, and none of the formats",
    "apiVersion: ray.io/v1\nkind: [": "line 2: it is not YAML",
}
"""Source -> beginning of the error."""
