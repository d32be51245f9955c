"""The tests that run on a GPU: device results, compiled layers, offload, memory, images, CUDA IPC, preloading."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_check.figures import Figure
from gpu_check.pytest_run import run_tests
from gpu_check.settings import Settings

FILES = (
    "test_policy_devices.py",
    "test_policy_compiled_packing.py",
    "test_policy_offload.py",
    "test_policy_frozen_weights.py",
    "test_policy_log_probs_memory.py",
    "test_vision.py",
    "test_rollout_weight_channel.py",
    "test_preload.py",
)


def run(settings: Settings) -> Iterator[Figure]:
    """Run them in one process of pytest."""
    yield from run_tests(settings, "devices and CUDA IPC", FILES)
