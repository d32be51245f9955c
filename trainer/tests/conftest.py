"""What several tests of the trainer need: a small model on disk, and configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlt_api.blocks.model import Model, SeededModel
from rlt_api.training_config import TrainingConfig

TINY = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}


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
            config[block] = {**config[block], **values} if isinstance(values, dict) else values
        return TrainingConfig.model_validate(config)

    return make


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A process group of this process alone."""
    from rlt_trainer.checkpoint.export_checkpoint import group_of_one

    with group_of_one():
        yield
