"""What the job of each script in script_sources must have, and which comments."""

from __future__ import annotations

from typing import Any

from yaml_musts import WORKERS, Must

IMAGE = "cluster.image"
FOLDER = "framework.workingDirectory"
STEPS = "framework.prepare"


def pods(replicas: int | None, count: int | None, resource: str = "nvidia.com/gpu", **fields: Any) -> dict[str, Any]:
    """Nodes, devices and other fields of the workers."""
    device = {"resourceName": resource, **({"count": count} if count else {})}
    others = {f"{WORKERS}.{name}": value for name, value in fields.items()}
    return {f"{WORKERS}.replicas": replicas, f"{WORKERS}.accelerator": device, **others}


def env(**variables: str) -> dict[str, Any]:
    """The variables of the pods."""
    return {"cluster.env": [{"name": name, "value": value} for name, value in variables.items()] or None}


MUSTS = {
    "verl-grpo-plain": Must(
        {**pods(1, 8), **env(VLLM_USE_V1="1")},
        ("set -x", '"$@"'),
        ("data.train_batch_size=512", 'trainer.logger=["console","wandb"]'),
    ),
    "verl-megatron-arrays": Must(
        pods(4, 8),
        ("DATA+=(data.shuffle=False)", "[ 4 -gt 8 ]"),
        (
            "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2",
            "data.train_files=['/data/a.parquet', '/data/b.parquet']",
            "data.max_response_length=2048",
        ),
    ),
    "verl-dapo-ray-submit": Must(
        pods(16, 8),
        ("--runtime-env", "--working-dir", "RAY_ADDRESS"),
        ("data.max_response_length=20480", "actor_rollout_ref.model.path=/shared/verl/models/base-32b"),
    ),
    "verl-slurm-apptainer": Must(
        {
            **pods(3, 4, resources={"cpu": "48", "memory": "400Gi"}),
            IMAGE: None,
            "activeDeadlineSeconds": 9000,
        },
        ("/work/images/verl.sif", "rlt render --image-file", "--bind", "ray start --head", "for ((i = 1", "hostname"),
        ("trainer.nnodes=3", "trainer.n_gpus_per_node=4"),
    ),
    "verl-slurm-pyxis": Must(
        {
            **pods(2, 8),
            **env(
                NCCL_IB_HCA="=mlx5_0:1,mlx5_1:1",
                NCCL_SOCKET_IFNAME="^lo,docker0",
                NCCL_IB_SL="1",
                HYDRA_FULL_ERROR="1",
            ),
            IMAGE: "nvcr.io/nvidia/verl:25.10",
            FOLDER: "/opt/verl/src",
            "network": None,
            "activeDeadlineSeconds": 86400,
        },
        ("--container-mounts /lustre/data:/data", "--no-container-mount-home", "--mpi pmix", "cd /opt/verl/src"),
    ),
    "verl-slurm-docker-amd": Must(
        {
            **pods(2, 8, "amd.com/gpu", resources={"cpu": "56", "memory": "200Gi", "sharedMemory": "128Gi"}),
            **env(GPU_MAX_HW_QUEUES="2", NCCL_PROTO="Simple", NCCL_IB_GID_INDEX="3", HSA_NO_SCRATCH_RECLAIM="1"),
            IMAGE: "registry.example/verl.rocm:6.3",
            FOLDER: "/work/verl",
            STEPS: [
                {
                    "name": "gsm8k",
                    "command": ["python3", "examples/data_preprocess/gsm8k.py", "--local_dir", "/shared/gsm8k"],
                }
            ],
        },
        ("docker build", "HIP_VISIBLE_DEVICES", "--privileged", "--group-add video", "--ipc host", "tail -f /dev/null"),
    ),
    "verl-sft-arguments": Must(
        pods(1, 4),
        ("$2", "Usage: sft.sh", "exit 1", "torchrun", "which has no accelerator"),
        ("model.partial_pretrain=Qwen/Qwen2.5-0.5B-Instruct",),
    ),
    "verl-fully-async": Must(pods(1, 8), ("trainer 1 x 2, rollout 1 x 6",), ("rollout.total_rollout_steps=5120",)),
    "verl-one-step-off": Must(pods(4, 8), ("trainer 2 x 8, rollout 2 x 8",)),
    "verl-ascend": Must({**pods(2, 16, "huawei.com/Ascend910"), **env(HCCL_CONNECT_TIMEOUT="1500")}),
    "verl-multiturn-tools": Must(pods(1, 8), ("ulimit -n 65535", "PROJECT_DIR", "$(pwd)")),
    "verl-prepare-first": Must(
        {
            **pods(1, 4),
            **env(HF_HUB_ENABLE_HF_TRANSFER="1"),
            "framework.runtimeEnv.pip": ["math-verify==0.8.0", "latex2sympy2>=1.9"],
            STEPS: [
                {
                    "name": "clone-rewards",
                    "command": ["git", "clone", "https://git.example/rewards.git", "/shared/rewards"],
                },
                {
                    "name": "download",
                    "command": ["huggingface-cli", "download", "Qwen/Qwen3-8B", "--local-dir", "/shared/models/q3"],
                },
                {
                    "name": "gsm8k",
                    "command": [
                        "python3",
                        "examples/data_preprocess/gsm8k.py",
                        "--local_save_dir",
                        "/shared/gsm8k",
                    ],
                },
            ],
        },
        ("WANDB_API_KEY: put it into a Secret", "pip install -e .", "wandb login", "verl.model_merger"),
    ),
    "verl-rank-branch": Must(
        pods(4, 8), ("the training is in this branch", "ray start --head", "else ray start --address", "PET_NODE_RANK")
    ),
    "verl-docker-exec": Must(
        {
            **pods(1, 8, resources={"sharedMemory": "10Gi"}),
            **env(VLLM_USE_V1="1"),
            IMAGE: "verlai/verl:vllm011",
            FOLDER: "/workspace/verl",
        },
        ("--cap-add SYS_ADMIN: no counterpart", "--net host", "-v .:/workspace/verl", "pip install --no-deps -e ."),
    ),
    "verl-search-server": Must(
        pods(1, 8),
        ("conda activate retriever", "a server beside the training", "retrieval_server.py", "CUDA_VISIBLE_DEVICES"),
        ("retriever.url=http://127.0.0.1:8000/retrieve",),
    ),
    "verl-loop-over-models": Must(
        pods(1, 8),
        ("loop over size in 1.7B, 4B", "loop over seed in 1, 2", "its first value, 1.7B", "sweep-4B-2"),
        ("actor_rollout_ref.model.path=/models/qwen3-1.7b", "trainer.experiment_name=sweep-1.7B-1"),
    ),
    "verl-function": Must(
        pods(1, 2),
        ("evaluate() { python3 eval.py", "the function is not called", "training first", "shift 2"),
        ("actor_rollout_ref.model.path=/models/base", "data.train_files=/data/a b.parquet"),
    ),
    "verl-moe-conversion": Must(
        {
            **pods(4, 8),
            STEPS: [
                {
                    "name": "converter-hf-to-mcore",
                    "command": [
                        "python",
                        "scripts/converter_hf_to_mcore.py",
                        "--hf_model_path",
                        "/models/q3-30b",
                        "--output_path",
                        "/models/q3-30b-mcore",
                    ],
                }
            ],
        }
    ),
    "verl-inner-sbatch": Must(
        {**pods(2, 4), **env(TOTAL="300"), "activeDeadlineSeconds": 28800},
        ("sbatch --nodes=2", "cat"),
        ("trainer.total_training_steps=300",),
    ),
    "verl-env-and-eval": Must(
        pods(1, 8),
        ('source "$ENV_FILE"', "train.log", "echo"),
        ("actor_rollout_ref.model.path=/models/default", "data.train_batch_size=128"),
    ),
    "openrlhf-hybrid": Must(pods(1, 8), (), ("--colocate_all_models", "meta/llama-8b")),
    "openrlhf-slurm-pyxis": Must(
        {
            **pods(2, 6),
            IMAGE: "nvcr.io/nvidia/pytorch:25.02-py3",
            FOLDER: "/openrlhf",
            "framework.runtimeEnv.pip": ["math-verify"],
            "activeDeadlineSeconds": 14400,
        },
        ("--mem=0", "ray start --head --port=6379 --block", "pip install ray[default]==2.48.0", "together 12"),
    ),
    "openrlhf-split-roles": Must(
        {**pods(2, 8), **env(NCCL_DEBUG="WARN"), FOLDER: "/openrlhf"},
        ("together 16", "value of WANDB_TOKEN", "with a secretKeyRef"),
    ),
    "openrlhf-reward-function": Must(
        {**pods(1, 8), FOLDER: "/work"}, ("cd /work",), ("/work/examples/python/reward_func.py",)
    ),
    "openrlhf-sft-deepspeed": Must(
        pods(1, 8), ("read -r -d '' training_commands", "slurm", "deepspeed"), ("openrlhf.cli.train_sft", "org/orca")
    ),
    "openrlhf-async-agent": Must(pods(1, 8), ("command substitution",)),
    "openrlhf-six-devices": Must(pods(4, 6), ("--gres=gpu:a100:6", "together 24")),
    "slime-colocate": Must(
        {**pods(1, 4), **env(PYTHONPATH="/root/Megatron-LM/", CUDA_DEVICE_MAX_CONNECTIONS="1")},
        (
            "pkill -9 sglang",
            "NCCL_NVLS_ENABLE",
            "MODEL_ARGS",
            "it is not followed",
            "models/qwen3-4B.sh",
            "WANDB_ARGS=(",
            "ray start --head",
            "nvidia-smi topo",
        ),
    ),
    "slime-async-split": Must({**pods(1, 8), **env(NCCL_ALGO="Ring")}, ("training 2, engines 6", "MASTER_ADDR")),
    "slime-hostfile": Must(pods(8, 8), ("exit 1", 'ssh root@"${WORKER}"', "wait")),
    "slime-slurm-container": Must(
        {**pods(2, 8, resources={"cpu": "128", "memory": "1024Gi"}), FOLDER: "/root/slime", IMAGE: None},
        ("/lustre/images/slime.sqsh", "--container-mounts", "--container-name", "--container-writable"),
    ),
    "slime-amd": Must(pods(1, 8, "amd.com/gpu"), ("HIP_VISIBLE_DEVICES", "megatron-core", "ray start --head")),
    "slime-vlm-switch": Must(
        pods(1, 8),
        ("import slime", "hf download", "*-32B) TP=8", "another branch is taken"),
        ("--tensor-model-parallel-size", "4", '{"image": "images"}'),
    ),
    "slime-convert-then-train": Must(
        {
            **pods(2, 8),
            STEPS: [
                {
                    "name": "convert-hf-to-torch-dist",
                    "command": [
                        "env",
                        "PYTHONPATH=/root/Megatron-LM",
                        "python",
                        "tools/convert_hf_to_torch_dist.py",
                        "--hf-checkpoint",
                        "/root/glm",
                        "--save",
                        "/root/glm_dist",
                    ],
                }
            ],
        },
        ("source scripts/models/glm4-9B.sh", "training 8, engines 8"),
    ),
    "skyrl-gsm8k": Must(
        pods(1, 4),
        ("uv run --isolated --extra vllm", '"$@"'),
        ("-m", "skyrl_train.entrypoints.main_base", "data.train_data=['/shared/gsm8k/train.parquet']"),
    ),
    "skyrl-dapo-two-nodes": Must(pods(2, 8), ("--env-file .env", "--with flash-attn==2.8.3", "LD_LIBRARY_PATH")),
    "skyrl-fully-async": Must({**pods(1, 4), **env(CUDA_LAUNCH_BLOCKING="0")}, ("training 2, engines 2",)),
    "skyrl-remote-engines": Must(pods(1, 4), ("vllm_server", "a server beside the training")),
    "skyrl-sft": Must(pods(1, 4), (), ("skyrl.train.main_sft",)),
    "skyrl-script-file": Must(pods(1, 8), (), ("python", "examples/train/visgym/main_visgym.py")),
    "nemo-ray-sub": Must(
        {
            **pods(4, 8),
            **env(UV_CACHE_DIR="/lustre/uv"),
            IMAGE: "nvcr.io/nvidia/nemo-rl:v0.5.0",
            "activeDeadlineSeconds": 14400,
        },
        ("MOUNTS=/lustre:/lustre", "--account=team", "ray.sub", "uv run"),
        ("python", "./examples/run_grpo_math.py", "grpo.max_num_steps=10"),
    ),
    "nemo-read-command": Must(
        {**pods(16, 4), FOLDER: "/opt/nemo-rl", IMAGE: None}, ("/lustre/images/nemo.sqsh", "HF_HOME=/lustre/hf")
    ),
    "nemo-local": Must({**pods(None, 2), **env(NRL_FORCE_REBUILD_VENVS="true")}, ("the number of nodes",)),
    "nemo-recipe-test": Must(
        pods(None, None),
        (
            "common.env",
            "value of CONFIG_PATH",
            "json_dump_tb_logs",
            "check_metrics",
            "NUM_NODES=2",
            "exit_if_max_steps",
        ),
    ),
    "nemo-sft-srun": Must(
        {**pods(1, 8, resources={"cpu": "64", "memory": "512Gi"}), IMAGE: "nvcr.io/nvidia/nemo-rl:v0.5.0"}
    ),
    "trl-slurm-accelerate": Must(
        {**pods(4, 8), "activeDeadlineSeconds": 259200},
        ("module load cuda/12.4", "env/bin/activate", "--requeue", "which has no accelerator", "value of SLURM_PROCID"),
    ),
    "trl-vllm-server": Must(
        {**pods(1, 4), **env(ACCELERATE_LOG_LEVEL="info")}, ("trl vllm-serve", "a server beside", "sleep 120")
    ),
    "trl-command-line": Must(pods(1, 2), ("HF_TOKEN: put it into a Secret",), ("--use_vllm",)),
    "trl-torchrun-nodes": Must(
        {**pods(2, 4, resources={"cpu": "32"}), **env(NCCL_DEBUG="INFO")}, ("MASTER_ADDR", "torchrun", "MASTER_PORT")
    ),
    "trl-deepspeed": Must(pods(1, 4), ("which has no accelerator",), ("ds_zero3.json",)),
    "trl-conda-timeout": Must(pods(1, 8), ("timeout 72h", "conda run", "-n trl", "--cpunodebind 0")),
    "prime-rl": Must({**pods(None, None), **env(WANDB_MODE="offline")}, ("uv run",), ("rl", "@")),
    "rllm-verl-agent": Must(
        {
            **pods(8, 8),
            **env(VLLM_ATTENTION_BACKEND="FLASH_ATTN", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False"),
        },
        ("RLLM_DIR",),
    ),
}
