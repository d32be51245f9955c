"""Every module of the trainer imports."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Iterator
from importlib.util import find_spec

import rlt_trainer
from gpu_check.figures import Figure
from gpu_check.settings import Settings


def run(settings: Settings) -> Iterator[Figure]:
    """Import all modules, and compute one product on the device."""
    start = time.perf_counter()
    names = [module.name for module in pkgutil.walk_packages(rlt_trainer.__path__, "rlt_trainer.")]
    failed = []
    for name in names:
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            failed.append(f"{name}: {error}")
    yield Figure("modules of the trainer imported", len(names) - len(failed), passed=not failed, note="; ".join(failed))
    yield Figure("time to import them", time.perf_counter() - start, "s")
    for name in ("ray", "vllm", "opentelemetry", "mcp", "torchao", "liger_kernel", "wandb"):
        yield Figure(f"package {name}", "present" if find_spec(name) else "absent")

    import torch

    ones = torch.ones(256, 256, device=settings.device, dtype=torch.bfloat16)
    total = float((ones @ ones).sum())
    yield Figure("a product in bfloat16 on the device", total, passed=total == 256.0**3)
