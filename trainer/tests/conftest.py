"""What several tests of the trainer need: a small model on disk, and configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlt_api.blocks.model import Model, SeededModel
from rlt_api.training_config import TrainingConfig

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

TINY = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked `gpu` where there is none."""
    if mark := item.get_closest_marker("gpu"):
        import torch

        needed, there = mark.kwargs.get("devices", 1), torch.cuda.device_count()
        if there < needed:
            pytest.skip(f"needs {needed} CUDA devices, and there are {there}")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """A test with this runs on the CPU, and on a GPU where there is one."""
    return str(request.param)


@pytest.fixture
def mesh(device: str, tmp_path: Path) -> Iterator[DeviceMesh]:
    """This process as the only rank, on `device`."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    backend, meeting = "nccl" if device == "cuda" else "gloo", f"file://{tmp_path}/meeting"
    dist.init_process_group(backend, init_method=meeting, rank=0, world_size=1)
    yield init_device_mesh(device, (1,))
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a Qwen3 of two layers with random weights."""
    from rlt_trainer.policy.model import model_files

    return model_files(Model(from_seed=SeededModel.model_validate(TINY)), tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="module")
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """This process as the only rank."""
    import torch.distributed as dist

    meeting = tmp_path_factory.mktemp("process-group") / "meeting"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., TrainingConfig]:
    """A config of the tiny model on the arithmetic preset; keywords replace fields of its blocks."""

    def make(**changes: Any) -> TrainingConfig:
        config: dict[str, Any] = {
            "job": "tiny",
            "namespace": "default",
            "runDirectory": str(tmp_path / "run"),
            "workers": 2,
            "devicesPerWorker": 0,
            "cpusPerWorker": 1,
            "model": {"fromSeed": TINY},
            "data": {"preset": "arithmetic", "maxPromptLength": 16, "maxResponseLength": 5},
            "rewards": [{"name": "exact"}],
            "algorithm": {},
            "training": {"totalSteps": 3, "trainBatchSize": 8, "ppoMiniBatchSize": 4, "learningRate": 1e-3},
            "rollout": {"engine": "transformers", "n": 4},
            "checkpoint": {},
            "observability": {},
        }
        for block, values in changes.items():
            config[block] = {**config.get(block, {}), **values} if isinstance(values, dict) else values
        return TrainingConfig.model_validate(config)

    return make


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A process group of this process alone."""
    from rlt_trainer.checkpoint.export_checkpoint import group_of_one

    with group_of_one():
        yield
