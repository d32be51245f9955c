"""Fixtures of the trainer's tests: a small model on disk, configs, and process groups."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlt_api.blocks.model import Model, SeededModel
from rlt_api.spec.training_config import ROLLOUT_RESOURCE, TRAIN_RESOURCE, TrainingConfig

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # read when Ray is imported: see rlt_trainer/__main__.py

TINY = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that are marked `gpu` if there are too few CUDA devices."""
    if mark := item.get_closest_marker("gpu"):
        import torch

        required = mark.kwargs.get("devices", 1)
        available = torch.cuda.device_count()
        if available < required:
            pytest.skip(f"requires {required} CUDA devices, found {available}")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Run the test on the CPU, and on a GPU if there is one."""
    return str(request.param)


@pytest.fixture
def mesh(device: str, tmp_path: Path) -> Iterator[DeviceMesh]:
    """A device mesh of this process on `device`."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    backend = "nccl" if device == "cuda" else "gloo"
    store = f"file://{tmp_path}/store"
    dist.init_process_group(backend, init_method=store, rank=0, world_size=1)
    yield init_device_mesh(device, (1,))
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a Qwen3 model with two layers and random weights."""
    from rlt_trainer.policy.model_files import prepare_model_files

    return prepare_model_files(Model(from_seed=SeededModel.model_validate(TINY)), tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="module")
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of this process, for one module."""
    import torch.distributed as dist

    store = tmp_path_factory.mktemp("process-group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """The address of a Ray cluster with four CPUs, for all tests of this worker that leave it intact.

    Every driver is its own Ray job: its actors and placement groups end when it leaves the cluster. Tests of
    `--local` and tests that kill the driver start their own cluster.
    """
    from ray.cluster_utils import Cluster

    resources = {TRAIN_RESOURCE: 4, ROLLOUT_RESOURCE: 4}
    head = {"num_cpus": 4, "resources": resources, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster.address
    cluster.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture
def ray_cluster(ray_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The shared Ray cluster. The trainer joins it with `local=False`, as in a pod."""
    import ray

    from rlt_trainer.driver.run import run

    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    defaults = run.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "port", 0)  # other tests use the port of the metrics
    yield
    ray.shutdown()  # after a test that failed


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., TrainingConfig]:
    """Builds a config of the tiny model and the arithmetic preset. Keywords replace fields of blocks."""

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
            "rollout": {"engine": "transformers", "responsesPerPrompt": 4},
            "checkpoint": {},
            "observability": {},
        }
        for block, values in changes.items():
            config[block] = {**config.get(block, {}), **values} if isinstance(values, dict) else values
        return TrainingConfig.model_validate(config)

    return make


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A process group of this process, for one test."""
    from rlt_trainer.checkpoint.export_checkpoint import single_rank_group

    with single_rank_group():
        yield
