"""The biases of routers reach the engine, a resumed run and the export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from in_process import train
from trained_families import FAMILIES, write_model
from transformers import AutoModelForCausalLM

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.policy.router_bias import BIAS
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.rollout.weight_channel import receive_weights
from rlt_trainer.rollout.weight_sync import StaleWeightsError

pytestmark = [pytest.mark.slow, pytest.mark.long]

RATE = 0.01

MakeConfig = Callable[..., TrainingConfig]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mixture")
    write_model(FAMILIES["GLM-4 MoE"], folder)
    return str(folder)


def build_job(make_config: MakeConfig, files: str, run: Path, steps: int) -> TrainingConfig:
    return make_config(
        workers=1,
        runDirectory=str(run),
        model={"fromSeed": None, "path": files},
        rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
        algorithm={"routerBiasUpdateRate": RATE},
        training={"totalSteps": steps},
        checkpoint={"saveFreq": 1},
    )


def test_a_resumed_run_has_the_biases_of_an_uninterrupted_one(
    make_config: MakeConfig, files: str, tmp_path: Path
) -> None:
    train(build_job(make_config, files, tmp_path / "parts", 1))
    parts, whole = (train(build_job(make_config, files, tmp_path / name, 3)) for name in ("parts", "whole"))
    for name in ("actor/pg_loss", "actor/grad_norm", "actor/expert_load_max", "actor/expert_load_entropy"):
        assert [step[name] for step in parts] == [step[name] for step in whole], name
    exported = [AutoModelForCausalLM.from_pretrained(tmp_path / name / "export") for name in ("parts", "whole")]
    assert all(torch.equal(*each) for each in zip(*(model.state_dict().values() for model in exported), strict=True))
    start = AutoModelForCausalLM.from_pretrained(files).state_dict()
    changes = [value - start[name] for name, value in exported[0].state_dict().items() if name.endswith(BIAS)]
    assert max(float(change.abs().max()) for change in changes) > 2 * RATE, "in several mini-batches"


def test_an_engine_without_the_new_biases_is_detected(
    make_config: MakeConfig, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_others(engine: TransformersEngine) -> None:
        for name, tensor in receive_weights(engine._channel):
            if not name.endswith(BIAS):
                engine._weights[name].data.copy_(tensor)

    monkeypatch.setattr(TransformersEngine, "_load_weights", load_others)
    names = "; ".join(rf"model\.layers\.{layer}\.mlp\.gate\.{BIAS}" for layer in (1, 2))
    with pytest.raises(StaleWeightsError, match=rf"weights differ from those that were sent \({names}\)"):
        train(build_job(make_config, files, tmp_path / "run", 2))
