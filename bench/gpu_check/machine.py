"""What the machine must have before a check starts: Python packages, one GPU, a driver."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

MIN_PYTHON = (3, 11)
MIN_MEMORY_GIB = 20
"""Of the GPU. The step of the whole loop needs about 12 GiB for the trainer and 30 % of the device for vLLM."""
MIN_CAPABILITY = (8, 0)
"""Compute capability of the oldest GPUs with bfloat16 (NVIDIA's CUDA C++ programming guide)."""
REQUIRED = {
    "torch": "torch",
    "transformers": "transformers",
    "numpy": "numpy",
    "safetensors": "safetensors",
    "peft": "peft",
    "pydantic": "pydantic",
    "prometheus_client": "prometheus-client",
    "pyarrow": "pyarrow",
    "pytest": "pytest",
    "pytest_asyncio": "pytest-asyncio",
    "psutil": "psutil",
    "math_verify": "math-verify",
}
"""Module -> distribution. Without them nothing runs."""
OPTIONAL = {
    "vllm": "vllm",
    "torchao": "torchao",
    "liger_kernel": "liger-kernel",
}
"""Module -> distribution. Without them their checks are not run."""


def find_problems(*, rehearse: bool) -> Iterator[str]:
    """Yield a sentence for each thing that is missing: what was found, and what is needed."""
    if sys.version_info[:2] < MIN_PYTHON:
        yield f"Python is {platform.python_version()}, and {'.'.join(map(str, MIN_PYTHON))} or newer is needed."
        return
    if missing := sorted(name for module, name in REQUIRED.items() if find_spec(module) is None):
        yield (
            f"{sys.executable} has no {', '.join(missing)}: install {'it' if len(missing) == 1 else 'them'}, or join "
            "the parts of the bundle and use its command."
        )
        return
    try:
        import rlt_trainer  # noqa: F401  # validates the versions of torch and transformers
    except ImportError as error:
        yield str(error)
        return
    if not rehearse:
        yield from _find_device_problems()


def _find_device_problems() -> Iterator[str]:
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        yield f"torch {torch.__version__} is built for CPUs: install a build for CUDA or ROCm."
        return
    if not torch.cuda.is_available():
        driver = read_driver()
        found = f"the driver is {driver}" if driver else "no driver was found"
        yield (
            f"torch {torch.__version__} for CUDA {torch.version.cuda} can use no GPU, and {found}: use a machine with "
            "a GPU and a driver for this CUDA version or newer. REHEARSE=1 runs the same code on CPUs."
        )
        return
    memory_gib = torch.cuda.mem_get_info()[1] / 2**30
    if problem := explain_device(torch.cuda.get_device_name(), memory_gib, torch.cuda.get_device_capability()):
        yield problem


def explain_device(name: str, memory_gib: float, capability: tuple[int, int]) -> str | None:
    """Return why the checks cannot run on this GPU; None if they can."""
    if memory_gib < MIN_MEMORY_GIB:
        return f"{name} has {memory_gib:.0f} GiB of memory, and {MIN_MEMORY_GIB} GiB are needed."
    if capability < MIN_CAPABILITY:
        found, needed = (".".join(map(str, each)) for each in (capability, MIN_CAPABILITY))
        return f"{name} has compute capability {found}, and {needed} or newer is needed for bfloat16."
    return None


def read_driver() -> str | None:
    """Return the version of the NVIDIA driver; None without a driver."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return output.strip().partition("\n")[0] or None


def describe_machine() -> dict[str, str]:
    """Return versions and hardware by name."""
    import torch

    found = {"python": platform.python_version(), "system": platform.platform(), "cpus": str(os.cpu_count())}
    for name in sorted({*REQUIRED.values(), *OPTIONAL.values(), "triton"}):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    found["torch"] = torch.__version__
    if torch.cuda.is_available():
        capability = ".".join(map(str, torch.cuda.get_device_capability()))
        memory = torch.cuda.mem_get_info()[1] / 2**30
        found |= {
            "gpu": torch.cuda.get_device_name(),
            "compute capability": capability,
            "memory": f"{memory:.1f} GiB",
            "driver": read_driver() or "unknown",
            "cuda": str(torch.version.cuda or torch.version.hip),
        }
    return found
