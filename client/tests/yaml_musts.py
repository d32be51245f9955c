"""What the job of each source in yaml_sources must have, and which comments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WORKERS = "cluster.workers[]"
DEVICES = f"{WORKERS}.accelerator"
NVIDIA = "nvidia.com/gpu"


@dataclass(frozen=True)
class Must:
    fields: dict[str, Any] = field(default_factory=dict)
    """Path of a field -> its value."""
    named: tuple[str, ...] = ()
    """Parts of comments."""
    words: tuple[str, ...] = ()
    """Words of the command."""
    reads_file: bool = False
    """Whether the program reads the same file, so that its settings are not in the job."""


MUSTS = {
    "raycluster-head-gpus": Must(
        {
            "metadata.namespace": "rl",
            "cluster.head.resources": None,
            "cluster.head.podTemplate.spec.containers": [
                {"name": "ray-head", "volumeMounts": [{"name": "code", "mountPath": "/opt/code"}]}
            ],
            "cluster.imagePullPolicy": "Always",
            f"{WORKERS}.replicas": 1,
            f"{WORKERS}.nodeSelector": {"gpu-model": "l40s"},
            f"{WORKERS}.resources": {"cpu": "40", "memory": "180Gi", "sharedMemory": "48Gi"},
            DEVICES: {"resourceName": NVIDIA, "count": 4},
        },
        ("the program: a RayCluster has none", "resources.requests.cpu 32", "dashboard-host", "serviceType ClusterIP"),
    ),
    "raycluster-two-groups": Must(
        {
            "metadata.labels": {"cost-center": "4711"},
            "metadata.annotations": {"owner": "team-math"},
            "scheduling": {
                "queueName": "gpu-queue",
                "priorityClassName": "batch-high",
                "topology": {"key": "cloud.example/rack", "mode": "required"},
            },
            "storage": {"claimName": "lake-rwx", "mountPath": "/lake"},
            f"{WORKERS}.name": "actor-group",
            f"{WORKERS}.numCpus": 60,
            f"{WORKERS}.resources.sharedMemory": "200Gi",
            f"{WORKERS}.podTemplate": {"spec": {"serviceAccountName": "trainer"}},
        },
        ("tolerationSeconds 300", "rdma/ib 8", "minReplicas 1", "idleTimeoutSeconds", "num-cpus"),
    ),
    "rayjob-verl-kueue": Must(
        {
            "metadata.name": "gsm8k-grpo",
            "metadata.labels": {"kueue.x-k8s.io/priority-class": "urgent"},
            "scheduling.topology.mode": "preferred",
            "framework.runtimeEnv.pip": ["math-verify==0.8.0", "latex2sympy2"],
            "framework.runtimeEnv.workingDir": "https://code.example/verl-recipes.zip",
            "failurePolicy.maxRestarts": 3,
            "activeDeadlineSeconds": 86400,
            "ttlSecondsAfterFinished": 3600,
            "suspend": True,
            "cluster.imagePullSecrets": ["pull-secret"],
            "cluster.terminationGracePeriodSeconds": 120,
            f"{WORKERS}.replicas": 2,
        },
        (
            "setup_timeout_seconds",
            "entrypointNumCpus 2",
            "efa 32",
            "optional true",
            "set resources.sharedMemory",
            "REDIS_PASSWORD",
        ),
        ("trainer.nnodes=2", "data.train_files=/data/train.parquet"),
    ),
    "rayjob-openrlhf-shell": Must(
        {
            "security.ipcLock": True,
            "metadata.annotations": {"ticket": "RL-77"},
            "cluster.env": [{"name": "MODEL", "value": "/cache/qwen"}],
        },
        ("pip ./requirements.txt", "ulimit -n 65536", "WANDB_API_KEY: put it into a Secret", "preStop"),
        ("bash", "-c"),
    ),
    "rayjob-autoscaled": Must(
        {
            f"{WORKERS}.replicas": 6,
            "cluster.head.resources": {"cpu": "16", "memory": "64Gi"},
            "cluster.head.podTemplate.metadata.annotations": {"prometheus.io/scrape": "true"},
            f"{WORKERS}.podTemplate.spec.topologySpreadConstraints[].maxSkew": 1,
        },
        (
            *("uid 0a1b", "creationTimestamp", "replicas 0", "maxReplicas 6", "idleTimeoutSeconds 120", "jobStatus"),
            *(
                "entrypointNumGpus 0.2",
                "jobId first",
                "team-a",
                "upgradeStrategy",
                "object-store-memory",
                "health-check",
            ),
        ),
        ("uv", "skyrl_train.entrypoints.main_base", "trainer.epochs=4"),
    ),
    "rayjob-volcano-gang": Must(
        {
            "metadata.name": "job-7b-gang",
            "scheduling": {"queueName": "rl-queue", "schedulerName": "volcano", "gang": True},
            f"{WORKERS}.name": "train",
            f"{WORKERS}.replicas": 3,
            "cluster.head": None,
        },
        ("num-gpus", "deletionStrategy", "the head of a job does not train"),
    ),
    "raycluster-amd-privileged": Must(
        {
            "network": {"attach": "hostNetwork", "hcas": ["mlx5_0", "mlx5_1"]},
            "security": {"supplementalGroups": [44, 109], "unconfined": True, "privileged": True},
            DEVICES: {"resourceName": "amd.com/gpu", "count": 8},
        },
        ("runAsUser 0", "redisAddress", "/dev/shm"),
    ),
    "trainjob-torchrun": Must(
        {
            "metadata.namespace": "kubeflow-rl",
            "metadata.labels": {"project": "sft"},
            "metadata.annotations": {"note": "first"},
            "suspend": False,
            f"{WORKERS}.replicas": 2,
            f"{DEVICES}.count": 4,
        },
        ("runtimeRef torch-distributed", "ClusterTrainingRuntime", "numProcPerNode 4", "managedBy"),
        ("torchrun", "--epochs"),
    ),
    "trainjob-overrides": Must(
        {
            "scheduling.queueName": "trainers",
            "storage": {"claimName": "outputs", "mountPath": "/out"},
            f"{WORKERS}.nodeSelector": {"pool": "h100"},
            f"{WORKERS}.tolerations": [{"key": "reserved", "operator": "Exists"}],
            "cluster.head.podTemplate.spec.serviceAccountName": "rl",
        },
        ("hf://example/gsm8k", "hf://example/qwen-small", "dataset-initializer"),
    ),
    "pytorchjob-master-worker": Must(
        {
            "scheduling": {"queueName": "rewards", "priorityClassName": "high"},
            "storage": {"claimName": "rm-data", "mountPath": "/data"},
            "framework.workingDirectory": "/src",
            "failurePolicy.maxRestarts": 2,
            f"{WORKERS}.name": "workers",
            f"{WORKERS}.replicas": 4,
            f"{WORKERS}.resources.sharedMemory": "16Gi",
        },
        ("minAvailable 4", "cleanPodPolicy Running", "restartPolicy OnFailure"),
    ),
    "pytorchjob-elastic": Must(
        {"scheduling.schedulerName": "kai-scheduler", f"{WORKERS}.replicas": 2, "cluster.env": None},
        ("nprocPerNode 8", "rdzvBackend", "torchrun: "),
    ),
    "jobset-leader-workers": Must(
        {
            "cluster.head.resources": {"cpu": "8", "memory": "32Gi"},
            f"{WORKERS}.name": "trainer",
            f"{WORKERS}.replicas": 4,
            "failurePolicy.maxRestarts": 4,
            "ttlSecondsAfterFinished": 900,
        },
        (
            "the program torchrun trainer.py",
            "exclusive-topology",
            "successPolicy",
            "enableDNSHostnames",
            "the job leader",
        ),
        ("prime_rl.orchestrator",),
    ),
    "job-single-pod": Must(
        {"failurePolicy.maxRestarts": 1, "activeDeadlineSeconds": 5400, "framework.workingDirectory": "/verl"},
        ("restartPolicy Never", "completions 1"),
    ),
    "volcano-job": Must(
        {
            "metadata.namespace": "ai",
            "scheduling": {"schedulerName": "volcano", "queueName": "gpu-a"},
            "storage": {"claimName": "cpfs", "mountPath": "/cpfs"},
            "cluster.head.resources": {"cpu": "16", "memory": "64Gi"},
            f"{WORKERS}.replicas": 2,
            f"{WORKERS}.nodeSelector": {"gpu": "h20"},
            f"{WORKERS}.resources.sharedMemory": "500Gi",
            "failurePolicy.maxRestarts": 2,
        },
        ("minAvailable 3", "publish-not-ready", "PodEvicted", "TaskCompleted", "ray start --address"),
        ("python examples/start_rlvr_pipeline.py --config_name a",),
    ),
    "dstack-ray-cluster": Must(
        {
            "metadata.name": "verl-ray",
            "framework.type": None,
            "framework.prepare[].command": ["git", "clone", "https://git.example/verl"],
            f"{WORKERS}.replicas": 2,
            DEVICES: {"resourceName": NVIDIA, "count": 8},
            f"{WORKERS}.resources.sharedMemory": "128G",
        },
        ("the program", "WANDB_API_KEY", "/checkpoints:/checkpoints", "pip install", "ray start --head", "8265"),
    ),
    "dstack-trl-grpo": Must(
        {
            "activeDeadlineSeconds": 21600,
            f"{WORKERS}.resources": {"cpu": "16", "memory": "64G"},
            DEVICES: {"resourceName": NVIDIA, "count": 4},
        },
        ("files", "retry true", "spot_policy auto", "python 3.12", "disk 200GB", "H100:4"),
        ("train.py", "Qwen/Qwen2.5-0.5B", "4"),
    ),
    "dstack-fleet-and-task": Must(
        {
            "security.privileged": True,
            "framework.workingDirectory": "/workspace",
            "cluster.image": "registry.example/openrlhf-rocm:1",
            DEVICES: {"resourceName": "amd.com/gpu", "count": 8},
        },
        ("registry_auth", "fleets", "stop_criteria", "fleet rl-fleet"),
        ("openrlhf.cli.train_ppo_ray",),
    ),
    "skypilot-verl-multinode": Must(
        {
            "cluster.image": "registry.example/verl:app",
            "framework.runtimeEnv": {"pip": ["math-verify"]},
            f"{WORKERS}.replicas": 2,
            f"{WORKERS}.resources": {"cpu": "64", "memory": "512Gi"},
            DEVICES: {"resourceName": NVIDIA, "count": 8},
        },
        ("HF_TOKEN", "WANDB_API_KEY", "file_mounts./ckpt", "workdir .", "network_tier best", "H200:8"),
        ("trainer.nnodes=2", "trainer.n_gpus_per_node=8", "actor_rollout_ref.actor.optim.lr=1e-6"),
    ),
    "skypilot-choices": Must(
        {DEVICES: {"resourceName": NVIDIA, "count": 4}, f"{WORKERS}.replicas": 1},
        ("any_of", "A100:4", "disk_size 512", "use_spot true", "volumes./data"),
        ("skyrl_train.entrypoints.main_base", "trainer.run_name=lora-1"),
    ),
    "skypilot-pipeline": Must(
        {"metadata.name": "train", f"{DEVICES}.count": 2},
        ("document two-stages", "document prepare: one job is converted"),
        ("--steps", "20"),
    ),
    "roll-rlvr-megatron": Must(
        {f"{WORKERS}.replicas": 2, f"{DEVICES}.count": 8, "framework.workingDirectory": "/workspace/ROLL"},
        ("the file", "validation.eval_steps"),
        ("examples/start_rlvr_pipeline.py",),
        reads_file=True,
    ),
    "roll-rlvr-async": Must(
        {f"{WORKERS}.replicas": 1}, ("the file",), ("examples/start_rlvr_pipeline.py",), reads_file=True
    ),
    "roll-agentic": Must(
        {f"{WORKERS}.replicas": 3},
        ("traj_envs", "the file"),
        ("examples/start_agentic_pipeline.py",),
        reads_file=True,
    ),
    "roll-agentic-rollout": Must(
        {f"{DEVICES}.count": 4}, ("the file",), ("examples/start_agentic_rollout_pipeline.py",), reads_file=True
    ),
    "roll-distill-vl": Must(
        {f"{WORKERS}.replicas": 2}, ("the file",), ("examples/start_distill_vl_pipeline.py",), reads_file=True
    ),
    "roll-distill": Must(
        {f"{WORKERS}.replicas": 2, f"{DEVICES}.count": 4},
        ("the file",),
        ("examples/start_distill_pipeline.py",),
        reads_file=True,
    ),
    "roll-onpolicy-distill": Must(
        {f"{WORKERS}.replicas": 1}, ("the file",), ("examples/start_onpolicy_distill_pipeline.py",), reads_file=True
    ),
    "roll-dpo": Must({f"{DEVICES}.count": 4}, ("the file",), ("examples/start_dpo_pipeline.py",), reads_file=True),
    "roll-sft": Must({f"{DEVICES}.count": 8}, ("the file",), ("examples/start_sft_pipeline.py",), reads_file=True),
    "roll-rlvr-vl": Must(
        {f"{DEVICES}.count": 8}, ("the file",), ("examples/start_rlvr_vl_pipeline.py",), reads_file=True
    ),
    "verl-ppo": Must(
        {"metadata.name": "qwen3-4b", f"{WORKERS}.replicas": 2, f"{DEVICES}.count": 8},
        ("ppo_trainer", "searchpath", "${data.max_response_length}", "_target_"),
        ("trainer.logger=[console,wandb]", '++team_option.note="text, with a comma"'),
    ),
    "verl-megatron": Must(
        {f"{WORKERS}.replicas": 4},
        ("ppo_megatron_trainer",),
        ("--config-name=ppo_megatron_trainer", "actor_rollout_ref.rollout.n=16"),
    ),
    "nemo-rl-grpo": Must(
        {f"{WORKERS}.replicas": 2, f"{DEVICES}.count": 8},
        ("grpo_math_1B.yaml", "the file"),
        ("examples/run_grpo.py", "--config"),
        reads_file=True,
    ),
    "nemo-rl-dpo": Must({f"{WORKERS}.replicas": 1}, ("the file",), ("examples/run_dpo.py",), reads_file=True),
    "nemo-rl-recipe": Must(
        {f"{WORKERS}.replicas": 3, f"{DEVICES}.count": 4},
        ("vlm_grpo_3B.yaml", "the file"),
        ("examples/run_vlm_grpo.py",),
        reads_file=True,
    ),
    "skyrl-grpo": Must(
        {"metadata.name": "skyrl-gsm8k", f"{DEVICES}.count": 8},
        ("ckpt_path",),
        ("++generator.num_inference_engines=4", "++trainer.policy.optimizer_config.lr=1e-6"),
    ),
    "trl-grpo": Must({DEVICES: None}, ("the file",), ("trl", "grpo", "--config"), reads_file=True),
}
"""Name of a file in yaml_sources -> what its job must have."""
