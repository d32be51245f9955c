"""Errors of the command line: one line on standard error, and exit code 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_pod.report.driver_report import PROGRESS_PREFIX
from rlt_trainer.__main__ import format_error, main, read_config
from rlt_trainer.errors import TrainingError, root_cause

CONFIGS_OF_VERSION_1 = Path(__file__).parents[2] / "api" / "tests" / "config_v1"
MakeConfig = Callable[..., TrainingConfig]
PLAIN = [{"prompt": "1+1=", "answer": "2"}]
VALIDATED = {"validation": {"testFreq": 1}}


def run(config: TrainingConfig, tmp_path: Path) -> int:
    file = tmp_path / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    return main(["run", "--config", str(file), "--local"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"fromSeed": None, "path": "/nowhere/llama"}}, "model.path /nowhere/llama"),
        ({"data": {"preset": "gsm8k", "path": "/nowhere/gsm8k"}}, "/nowhere/gsm8k"),
        ({"rewards": [{"name": "exakt"}]}, 'did you mean "exact"'),
        ({"training": {"ppoMiniBatchSize": 1}}, "training.ppoMiniBatchSize: 1 is not divisible by 2 ranks"),
        ({"training": {"warmup": {"steps": 1, "batchSize": 3}}}, "training.warmup.batchSize: 3"),
        ({"data": {"maxResponseLength": 10**6}}, "maxResponseLength 1000000"),
        ({"data": {"maxPromptLength": 2}}, "data.maxPromptLength 2 is shorter than each of the 8000"),
        ({"data": {"preset": None, "files": ["/nowhere/a.parquet"]}}, "data.files /nowhere/a.parquet: no such file"),
        ({"training": {"totalEpochs": 1, "trainBatchSize": 8004}}, "do not fill one batch"),
        ({"data": {"preset": None, "inline": PLAIN}, "training": VALIDATED}, "the data has no validation set"),
        ({"algorithm": {"critic": {"modelPath": "/nowhere/critic"}}}, "/nowhere/critic"),
    ],
)
def test_invalid_input_is_reported_before_ray_starts(
    changes: dict[str, object],
    message: str,
    make_config: MakeConfig,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was started"))
    assert run(make_config(**changes), tmp_path) == 1
    output = capsys.readouterr()
    last = output.err.splitlines()[-1]
    assert last.startswith("rlt-trainer: error: ")
    assert message in last
    assert "Traceback" not in output.err
    assert output.out.splitlines()[-1].startswith(PROGRESS_PREFIX)


def test_an_invalid_config_is_reported_with_its_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "training.json").write_text('{"job": 1}')
    assert main(["run", "--config", str(tmp_path / "training.json")]) == 1
    assert "training.json: job: Input should be a valid string" in capsys.readouterr().err


def test_a_config_of_another_version_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "training.json").write_text('{"version": 99, "new": 1}')
    assert main(["run", "--config", str(tmp_path / "training.json")]) == 1
    assert "training.json: version: 99: this trainer reads version" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(CONFIGS_OF_VERSION_1.glob("[!s]*.json")), ids=lambda path: path.stem)
def test_a_config_of_version_1_is_accepted(path: Path) -> None:
    """An operator of an earlier version wrote it."""
    assert read_config(path).run_directory.startswith("/mnt/")


def test_a_missing_config_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config", str(tmp_path / "nothing.json")]) == 1
    assert "nothing.json: no such file" in capsys.readouterr().err


def test_the_error_of_an_actor_is_unwrapped() -> None:
    from ray.exceptions import RayTaskError

    wrapped = RayTaskError("sync_weights", "Traceback ...", TrainingError("stale\nweights"))  # type: ignore[no-untyped-call]
    assert format_error(root_cause(wrapped.as_instanceof_cause())) == "stale weights"  # type: ignore[no-untyped-call]


def test_an_unexpected_error_is_formatted_with_its_type() -> None:
    assert format_error(KeyError("x")) == "KeyError: 'x'"
