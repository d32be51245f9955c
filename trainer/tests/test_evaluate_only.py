"""evaluateOnly: models that exist are scored as in the training, without train workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import LocalProcess, LocalProcesses, evaluate, train

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.checkpoint.export_checkpoint import export_checkpoint
from rlt_trainer.checkpoint.marker import COMPLETE
from rlt_trainer.driver import evaluated_models
from rlt_trainer.driver.engine_processes import EngineLostError, EngineProcess
from rlt_trainer.driver.evaluated_models import list_models
from rlt_trainer.evaluation.sample_file import read_samples
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.workers.rollout_worker import RolloutWorker

MakeConfig = Callable[..., TrainingConfig]
SUITES: list[dict[str, Any]] = [
    {"name": "digits", "every": 1, "beforeTrain": True, "responsesPerPrompt": 2, "temperature": 1.0},
    {"name": "sums", "every": 1, "beforeTrain": True, "data": {"preset": "arithmetic"}},
]
COMMON: dict[str, Any] = {
    "workers": 1,
    "rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
    "data": {"preset": "digits"},
    "evaluation": SUITES,
}
TRAINED: dict[str, Any] = {**COMMON, "training": {"learningRate": 1e-2}, "checkpoint": {"saveFreq": 1}}


def train_with_checkpoints(config: TrainingConfig) -> dict[int, dict[str, Any]]:
    """Train, and write the config as `run` does. Return the metrics by step."""
    RunDirectory(config.run_directory).write_config(config)
    return {line["step"]: line for line in train(config)}


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["full", "lora"])
def test_checkpoints_have_the_responses_of_the_training(
    make_config: MakeConfig, tmp_path: Path, lora: dict[str, Any] | None
) -> None:
    model = {"lora": lora} if lora else {}
    trained = train_with_checkpoints(make_config(**TRAINED, model=model))
    only = {"checkpoints": str(tmp_path / "run/checkpoints"), "steps": [0, 2, "latest"]}
    config = make_config(**COMMON, model=model, evaluateOnly=only, runDirectory=str(tmp_path / "later"))
    later = evaluate(config)
    assert [line["step"] for line in later] == [0, 2, 3]
    for line in later:
        names = [name for name in line if name.startswith("val")]
        assert "val/digits/reward/low" in names
        assert ("val/digits/reward/gain_low" in names) is (line["step"] > 0)
        if lora is None:
            assert {name: trained[line["step"]][name] for name in names} == {name: line[name] for name in names}
    for suite in ("digits", "sums"):
        files = {step: f"evaluation/{suite}/step-{step}.parquet" for step in (0, 2, 3)}
        ours = {step: read_samples(tmp_path / "later" / file).scores for step, file in files.items()}
        theirs = {step: read_samples(tmp_path / "run" / file).scores for step, file in files.items()}
        assert all(np.isclose(ours[step], theirs[step]).mean() >= (0.95 if lora else 1) for step in files), suite
    assert not np.array_equal(ours[0], ours[3]), "the training has changed no response: another model would pass"
    assert not (tmp_path / "later" / evaluated_models.EXPORTS).exists()
    assert not list((tmp_path / "later/checkpoints").iterdir())


@pytest.mark.slow
def test_a_restarted_job_evaluates_the_other_models(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_with_checkpoints(make_config(**TRAINED))
    gate = [{"name": "digits", "promoteIf": {"gainAbove": -2}}]

    def config(*steps: int) -> TrainingConfig:
        only = {"checkpoints": str(tmp_path / "run/checkpoints"), "steps": list(steps)}
        changes = {"evaluation": gate, "evaluateOnly": only, "runDirectory": str(tmp_path / "later")}
        return make_config(**{**COMMON, **changes})

    evaluate(config(0, 1))
    loaded: list[Path] = []

    def record_export(checkpoint: Path, output: Path, trained: TrainingConfig) -> None:
        loaded.append(checkpoint)
        export_checkpoint(checkpoint, output, trained)

    monkeypatch.setattr("rlt_trainer.checkpoint.export_checkpoint.export_checkpoint", record_export)
    assert [line["step"] for line in evaluate(config(0, 1, 3))] == [0, 1, 3]
    assert [folder.name for folder in loaded] == ["step-3"]
    judged = json.loads((tmp_path / "later/evaluation/gates.json").read_text())
    assert (judged["step"], judged["gates"]["digits"]["passed"]) == (3, True)
    assert "[finished] 3 models evaluated" in capsys.readouterr().out


@pytest.mark.slow
def test_an_engine_that_ends_is_started_again_with_the_same_model(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []
    start = LocalProcesses.start

    class Ending(LocalProcess):
        """Ends at the first request for responses."""

        async def call(self, method: Any, *arguments: Any, **options: Any) -> Any:
            if method is RolloutWorker.submit:
                raise EngineLostError("its process ended")
            return await super().call(method, *arguments, **options)

    def start_ending(processes: LocalProcesses, number: int) -> EngineProcess:
        starts.append(number)
        process = start(processes, number)
        return Ending(processes.workers[-1]) if len(starts) == 1 else process

    monkeypatch.setattr(LocalProcesses, "start", start_ending)
    (line,) = evaluate(make_config(**COMMON, evaluateOnly={}))
    assert starts == [0, 0]
    assert line["val/digits/failed"] == 0


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ({"steps": [7]}, r"evaluateOnly.steps: 7: .* has the complete checkpoints 1, 3: use these"),
        ({"checkpoints": "/nowhere"}, "evaluateOnly.checkpoints: /nowhere: it has no complete checkpoint. Use"),
        ({"model": {"fromSeed": {"seed": 9}}}, "model: fromSeed: the run of .* has trained fromSeed: use the same"),
        ({"config": "{}"}, "the config of its run cannot be read"),
    ],
    ids=["step", "folder", "model", "config"],
)
def test_models_that_cannot_be_evaluated(
    make_config: MakeConfig, tmp_path: Path, only: dict[str, Any], message: str
) -> None:
    checkpoints = tmp_path / "run/checkpoints"
    trained = make_config(**COMMON)
    text = only.pop("config", trained.model_dump_json(by_alias=True, exclude_none=True))
    model = only.pop("model", {})
    for number, step in enumerate((1, 3)):
        folder = checkpoints / f"step-{step}"
        folder.mkdir(parents=True)
        mark = {"step": step, "number": number, "files": {}, "format": 1}
        (folder / COMPLETE).write_text(json.dumps(mark))
    (tmp_path / "run/config.json").write_text(text)
    config = make_config(**COMMON, model=model, evaluateOnly={"checkpoints": str(checkpoints), **only})
    with pytest.raises(ValueError, match=message):
        list_models(config)
