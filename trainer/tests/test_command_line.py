"""Errors of the command line: one line on standard error, and exit code 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rlt_api.spec.training_config import CONFIG_FILE, CONFIG_VERSION, TrainingConfig, dump_config
from rlt_pod.report.driver_report import PROGRESS_PREFIX
from rlt_trainer.__main__ import format_error, main, read_config
from rlt_trainer.errors import TrainingError, root_cause

GOLDEN = Path(__file__).parents[2] / "core" / "tests" / "golden"
"""The manifests that the operator creates for jobs."""
MakeConfig = Callable[..., TrainingConfig]
PLAIN = [{"prompt": "1+1=", "answer": "2"}]
EVALUATED = [{"name": "test", "every": 1}]


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
        ({"data": {"preset": None, "inline": PLAIN}, "evaluation": EVALUATED}, "evaluation test: data is required"),
        (
            {"evaluation": [{**EVALUATED[0], "data": {"files": ["/nowhere/a.jsonl"]}}]},
            "evaluation test: data.files /nowhere/a.jsonl: no such file",
        ),
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


def read_config_of_the_operator(manifests: Path) -> str | None:
    """The trainer's config in the manifests of a job's children. None if another program trains."""
    data = [manifest.get("data", {}) for manifest in yaml.safe_load_all(manifests.read_text())]
    return next((each[CONFIG_FILE] for each in data if CONFIG_FILE in each), None)


CONFIGS = {path.stem: text for path in sorted(GOLDEN.glob("*.yaml")) if (text := read_config_of_the_operator(path))}


@pytest.mark.parametrize("text", CONFIGS.values(), ids=list(CONFIGS))
def test_the_config_of_the_operator_is_read_and_written_unchanged(text: str, tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(text)
    assert json.loads(text)["version"] == CONFIG_VERSION
    assert dump_config(read_config(tmp_path / CONFIG_FILE)) == text


def test_a_field_of_a_later_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads(CONFIGS["arithmetic"])
    config["rollout"]["burst"] = 2
    (tmp_path / CONFIG_FILE).write_text(json.dumps(config))
    assert main(["run", "--config", str(tmp_path / CONFIG_FILE)]) == 1
    assert "training.json: rollout.burst: Extra inputs are not permitted" in capsys.readouterr().err


def test_a_missing_config_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config", str(tmp_path / "nothing.json")]) == 1
    assert "nothing.json: no such file" in capsys.readouterr().err


def test_the_error_of_an_actor_is_unwrapped() -> None:
    from ray.exceptions import RayTaskError

    wrapped = RayTaskError("sync_weights", "Traceback ...", TrainingError("stale\nweights"))  # type: ignore[no-untyped-call]
    assert format_error(root_cause(wrapped.as_instanceof_cause())) == "stale weights"  # type: ignore[no-untyped-call]


def test_an_unexpected_error_is_formatted_with_its_type() -> None:
    assert format_error(KeyError("x")) == "KeyError: 'x'"
