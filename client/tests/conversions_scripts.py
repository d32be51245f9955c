"""Scripts and launchers, in the shapes of published ones."""

from __future__ import annotations

from conversion import VERL, WORKERS, Conversion

SCRIPTS = (
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
        {
            "network": {"hcas": ["mlx5_0", "mlx5_1"], "socketInterface": "eth0"},
            "cluster.env": [{"name": "NCCL_IB_GID_INDEX", "value": "3"}],
        },
    ),
    Conversion(
        "a value that only the machine has",
        f"{VERL} data.train_files=$HOME/d.parquet",
        {"framework.command": ["bash", "-c", f"{VERL} data.train_files=$HOME/d.parquet"]},
        ("line 1: value of HOME: it is not in the script",),
    ),
    Conversion(
        "a condition",
        f"if [ -z $X ]; then\n export M=a\nelse\n export M=b\nfi\n{VERL} x=$M",
        last=("x=a",),
        left_out=("line 1: if [ -z $X ]: it is true", "line 3: else export M=b: another branch is taken"),
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
            "cluster.image": None,
        },
        (
            "line 6: #SBATCH --partition=batch: Slurm's queues",
            "line 9: image verl.sif: cluster.image is an image of a registry",
        ),
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
)
