"""LoRA in complete runs: engine, checkpoint and export include the adapters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from in_process import train
from peft import PeftModel
from safetensors.torch import load_file

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.policy.model import load_model

pytestmark = pytest.mark.slow


def test_a_resumed_run_with_adapters_is_identical(
    make_config: Callable[..., TrainingConfig], tiny_model: str, tmp_path: Path
) -> None:
    config = make_config(
        workers=1,
        model={"fromSeed": None, "path": tiny_model, "lora": {"rank": 4}},
        algorithm={"klLossCoef": 0.001},
        training={"totalSteps": 3, "learningRate": 1e-2},
        rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
        checkpoint={"saveFreq": 1},
    )
    whole = train(config)
    run = Path(config.run_directory)
    assert all(step["training/weight_sync_difference"] < 1e-4 and step["actor/grad_norm"] > 0 for step in whole)
    merged = load_file(run / "export/model.safetensors")
    adapted = PeftModel.from_pretrained(load_model(tiny_model, torch.float32), str(run / "export/adapter"))
    for name, weight in adapted.merge_and_unload().named_parameters():
        torch.testing.assert_close(merged[name], weight, atol=1e-6, rtol=0)

    shutil.rmtree(run / "checkpoints/step-3")
    shutil.rmtree(run / "checkpoints/step-2")
    for name in ("export", "metrics.jsonl"):
        (run / name).rename(tmp_path / name)
    rest = train(config)
    assert [step["training/global_step"] for step in rest] == [1, 2, 3], "step 1 is restored from the checkpoint"
    for one, other in zip(rest, whole, strict=True):
        for name in ("critic/score/mean", "actor/pg_loss", "actor/grad_norm", "actor/kl_loss"):
            assert one[name] == other[name], name
    again = load_file(run / "export/model.safetensors")
    assert all(torch.equal(again[name], merged[name]) for name in merged)
