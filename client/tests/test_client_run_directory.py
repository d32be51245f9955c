"""The reader of run directories.

- the last line of a step is valid, as in a resumed run;
- a directory that is being written, cut off, of another version, or of other content is read as far as possible;
- memory is bounded;
- what a pod packs from the volume of a job is read in the same way.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rlt.errors import UnavailableError
from rlt.runs import directory as run_directory
from rlt.runs.directory import MAX_TEXT_LENGTH, iterate_json_lines, read_run_directory
from rlt.runs.run import read_run
from rlt_api.spec.training_config import CONFIG_VERSION
from rlt_pod import read_attempts as attempt_reader

CONFIG = {"version": CONFIG_VERSION, "job": "sum", "training": {"totalSteps": 4, "learningRate": 1e-6}}


def write_run(path: Path, *lines: str, config: Any = CONFIG, rollouts: str = "") -> Path:
    (path / "rollouts").mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(lines))
    if rollouts:
        (path / "rollouts/step-9.jsonl").write_text("{}\n")
        (path / "rollouts/step-10.jsonl").write_text(rollouts)
    return path


def step(number: int, reward: float | None = 0.5) -> str:
    return json.dumps({"step": number, "critic/rewards/mean": reward}) + "\n"


def test_a_resumed_run_replaces_the_steps_after_its_checkpoint(tmp_path: Path) -> None:
    lines = [step(1), step(2), step(3), step(2, 0.75), step(3, None)]
    found = read_run_directory(write_run(tmp_path, *lines)).steps
    assert [(each["step"], each["critic/rewards/mean"]) for each in found] == [(1, 0.5), (2, 0.75), (3, None)]


def test_an_incomplete_last_line_is_left_out_with_a_note(tmp_path: Path) -> None:
    found = read_run_directory(write_run(tmp_path, step(1), step(2)[:-4]))
    assert [each["step"] for each in found.steps] == [1]
    note = "The last line of metrics.jsonl is incomplete: it is being written, or the run ended."
    assert note in found.notes


def test_lines_of_other_content_are_counted(tmp_path: Path) -> None:
    lines = [
        "[1]\n",
        "\x00\xff\n",
        '{"step": "1"}\n',
        '{"step": 1, "a": "text", "b": true, "c": 2, "d": null}\n',
        "[" * 9999,
    ]
    found = read_run_directory(write_run(tmp_path, *lines, "\n"))
    assert found.steps == [{"step": 1, "c": 2, "d": None}]
    assert "metrics.jsonl has 3 lines that cannot be parsed." in found.notes


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({**CONFIG, "version": 99}, f"config.json has version 99, and this rlt knows {CONFIG_VERSION}: "),
        ("[]", "config.json is not a JSON object."),
        ("{", "config.json is not a JSON object."),
    ],
)
def test_a_config_of_another_version_or_content_has_a_note(tmp_path: Path, config: Any, note: str) -> None:
    found = read_run_directory(write_run(tmp_path, step(1), config=config))
    assert any(each.startswith(note) for each in found.notes)
    assert len(found.steps) == 1


def test_an_empty_run_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(json.dumps(CONFIG))
    run = read_run(tmp_path)
    assert (run.name, run.phase, run.sentence) == ("sum", "Incomplete", "0 of 4 steps are recorded.")
    assert [note.partition(":")[0] for note in run.notes] == [
        "metrics.jsonl does not exist",
        "No rollouts are recorded.",
    ]


def test_another_directory_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="is not a run directory") as raised:
        read_run_directory(tmp_path)
    assert raised.value.next == f"ls {tmp_path}"


def test_the_best_and_the_worst_rollouts_of_the_latest_step_are_kept(tmp_path: Path) -> None:
    lines = [
        {"prompt": str(number), "response": "x" * (MAX_TEXT_LENGTH + 5), "reward": number, "segments": [1]}
        for number in range(50)
    ]
    rollouts = "".join(f"{json.dumps(each)}\n" for each in [*lines, {"response": "", "reward": None}])
    found = read_run_directory(write_run(tmp_path, step(10), rollouts=rollouts))
    assert found.rollouts_step == 10
    assert [each["reward"] for each in found.rollouts] == [49, 48, 47, 1, 0, None]
    assert found.rollouts[0]["response"].endswith("x… (5 more characters)")
    assert "segments" not in found.rollouts[0]


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "MAX_LINE_BYTES", 100_000)
    lines = [json.dumps({"response": f"{number}{'x' * 50_000}", "reward": 0.5}) + "\n" for number in range(400)]
    rollouts = "".join([*lines, "y" * 2_000_000, "\n", lines[0]])
    write_run(tmp_path, step(10), rollouts=rollouts)
    tracemalloc.start()
    found = read_run_directory(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.rollouts) == 6
    assert "step-10.jsonl has 1 line that cannot be parsed." in found.notes
    assert peak < len(rollouts) / 10


def test_of_a_large_file_the_end_is_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    notes = list[str]()
    file.write_text("".join(map(step, range(100))))
    found = [each["step"] for each in iterate_json_lines(file, 500, notes)]
    assert found == list(range(100 - len(found), 100))
    assert 5 < len(found) < 20
    assert notes == ["metrics.jsonl has 0 MiB: only its last 0 MiB are read."]


def test_the_records_of_a_volume_are_packed(tmp_path: Path) -> None:
    """A file of bounded size has its earlier lines in metrics.jsonl.1."""
    source = write_run(tmp_path / "run", step(2), step(3), rollouts='{"reward": 1}\n')
    (source / "metrics.jsonl.1").write_text(step(1))
    assert [each["step"] for each in read_run_directory(source).steps] == [1, 2, 3]
    command = [sys.executable, attempt_reader.__file__, "records", str(source), "1000000"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(printed))) as archive:
        archive.extractall(tmp_path / "copy")
    assert read_run_directory(tmp_path / "copy") == read_run_directory(source)


def test_secrets_are_masked(tmp_path: Path) -> None:
    config = {**CONFIG, "cluster": {"env": [{"name": "DB_PASSWORD", "value": "correct-horse"}]}}
    rollouts = json.dumps({"prompt": "the correct-horse", "response": "hf_abcdefghijklmnopqrst", "reward": 1}) + "\n"
    run = read_run(write_run(tmp_path, step(1), config=config, rollouts=rollouts))
    assert "correct-horse" not in str(run)
    assert run.rollouts[0]["response"] == "***"


def test_a_broken_rule_is_a_finding(tmp_path: Path) -> None:
    lines = [json.dumps({"step": number, "actor/kl_loss": 9.0}) + "\n" for number in range(1, 13)]
    (finding,) = read_run(write_run(tmp_path, *lines)).findings
    assert finding["code"] == "KlRunaway"
    assert "9 at step 1" in finding["evidence"]
