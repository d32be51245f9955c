"""The records of a program that run_command.py serves: the metrics of each step in its output, and its logs."""

from __future__ import annotations

import json
import os
import shlex
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import observed as o
import pytest
from apiserver.waiting import eventually
from command_wrapper import Start, end, fetch
from gate import Gate
from verl_jobs import VERL
from verl_output import VERL_LINE

from rlt.runs.directory import read_steps
from rlt_core.entrypoint import build_entrypoint, build_run_command_arguments
from rlt_e2e.ports import free_port
from rlt_pod.command import log_file
from rlt_pod.command.console import Progress, update
from rlt_pod.command.history import History
from rlt_pod.report.step_history import read_history


def parse(text: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def fetch_error(port: int, path: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10)
    return raised.value.code, raised.value.read().decode()


def test_the_history_has_each_step_of_all_attempts_once(start: Start, gate: Gate, tmp_path: Path) -> None:
    """The second attempt resumes at step 2, and the first one ended after step 3."""
    port = free_port()
    options = ("--run-directory", str(tmp_path / "run"))
    assert end(start("for n in (1, 2, 3): print(f'step:{n} - a:{n}')", "--port", "0", *options))[0] == 0
    process = start(f"print('step:2 - a:20 - b:nan')\nprint({VERL_LINE!r})\n{gate.wait}", "--port", str(port), *options)
    served = parse(eventually("step 34", lambda: (text := fetch(port, "/history")) and '"step": 34' in text and text))
    assert [(each["step"], each.get("a")) for each in served] == [(1, 1.0), (2, 20.0), (34, None)]
    assert served[1]["b"] is None
    assert served[2]["critic/rewards/mean"] == -0.0182796623557806
    assert [each["step"] for each in parse(str(fetch(port, "/history?since=2")))] == [34]
    assert fetch(port, "/history?since=x") is None
    gate.open()
    assert end(process)[0] == 0
    notes: list[str] = []
    assert (read_steps(tmp_path / "run", notes), notes) == (served, [])


def test_the_logs_of_all_attempts_are_served(start: Start, gate: Gate, tmp_path: Path) -> None:
    port = free_port()
    run = tmp_path / "run"
    (run / "attempts/1").mkdir(parents=True)
    (run / "attempts/1/program.log").write_text("the first attempt\n")
    log = str(run / "attempts/2/program.log")
    process = start(f"print('early')\n{gate.wait}", "--port", str(port), "--run-directory", str(run), "--log", log)
    eventually("the log", lambda: fetch(port, "/logs?file=2/program.log") == "early\n")
    assert [each["path"] for each in parse(str(fetch(port, "/logs")))] == ["1/program.log", "2/program.log"]
    assert fetch(port, "/logs?file=1/program.log") == "the first attempt\n"
    assert fetch(port, "/logs?file=../metrics.jsonl") is None
    gate.open()
    assert end(process)[0] == 0


def test_the_responses_of_verl_are_served_as_rollouts(start: Start, gate: Gate, tmp_path: Path) -> None:
    """The lines are from verl 0.9.1 with a reward function that returns more numbers."""
    port = free_port()
    folder = tmp_path / "rollouts"
    options = ("--run-directory", str(tmp_path), "--verl-rollouts", str(folder))
    process = start(gate.wait, "--port", str(port), *options)
    eventually("an answer", lambda: fetch(port, "/healthz"))
    assert fetch_error(port, "/rollouts") == (404, "the run has no responses yet\n")
    folder.mkdir()
    rows = [("1+1=", "2", 1.0), ("1+1=", "3", 0.0), ("2+2=", "4", float("nan"))]
    lines = [
        {"input": prompt, "output": response, "gts": "2", "score": score, "step": 9, "acc": score, "request_id": "a"}
        for prompt, response, score in rows
    ]
    (folder / "9.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '[1]\n{"input": "2+')
    (folder / "10.jsonl").write_text("")
    found = parse(str(fetch(port, "/rollouts?step=9")))
    first = {"index": 0, "prompt": "1+1=", "response": "2", "ground_truth": "2", "reward": 1.0, "rewards": {"acc": 1.0}}
    assert found[0] == first
    assert [(each["index"], each["reward"]) for each in found] == [(0, 1.0), (0, 0.0), (1, None)]
    assert fetch(port, "/rollouts") == ""  # of step 10
    assert fetch_error(port, "/rollouts?step=3") == (404, "step 3 has no responses; the latest are of step 10\n")
    os.truncate(folder / "9.jsonl", 2 * 2**30)  # the file is sparse
    assert fetch_error(port, "/rollouts?step=9")[0] == 413
    gate.open()
    assert end(process)[0] == 0


@pytest.mark.parametrize(
    ("framework", "folder"),
    [
        ({"command": ["python3", "-m", "verl.trainer.main_ppo", "trainer.rollout_data_dir=/data/r"]}, "/data/r"),
        ({"command": ["python3", "-m", "verl.trainer.main_ppo", "trainer.rollout_data_dir=r"]}, None),
        ({"command": ["python3", "-m", "verl.trainer.main_ppo"]}, None),
        ({"command": ["python3", "train.py", "trainer.rollout_data_dir=/data/r"]}, None),
    ],
)
def test_the_folder_of_verls_responses_is_found(framework: dict[str, Any], folder: str | None) -> None:
    job = o.job({**o.COMMAND_SPEC, "framework": {"type": "command", **framework}})
    assert job.spec
    words = build_run_command_arguments(job, job.spec)
    assert (words[words.index("--verl-rollouts") + 1] if "--verl-rollouts" in words else None) == folder


def test_the_folder_of_responses_is_found_in_verls_overrides() -> None:
    framework = {**VERL["framework"], "overrides": ["trainer.rollout_data_dir=/mnt/rlt/responses"]}
    job = o.job({**VERL, "framework": framework})
    assert job.spec, job.findings
    words = build_run_command_arguments(job, job.spec)
    assert words[words.index("--verl-rollouts") + 1] == "/mnt/rlt/responses"


def test_without_a_run_directory_there_are_no_records(start: Start, gate: Gate) -> None:
    port = free_port()
    process = start(f"print('step:1 - a:1')\n{gate.wait}", "--port", str(port))
    eventually("an answer", lambda: fetch(port, "/progress"))
    assert (fetch(port, "/history"), fetch(port, "/logs")) == (None, None)
    gate.open()
    assert end(process)[0] == 0


def test_the_size_of_the_file_is_bounded_and_both_parts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "MAX_FILE_BYTES", 60)
    progress = Progress(0.0)
    for number in range(1, 8):
        history = History(str(tmp_path))
        after = update(progress, f"step:{number} - critic/rewards/mean:0.5", 1.0)
        history.record(progress, after)
        history.record(after, update(after, "another line", 2.0))
        history.close()  # each line is a separate write
        progress = after
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3 * 60
    kept = parse(read_history(tmp_path / "metrics.jsonl", after=0))
    assert [each["step"] for each in kept] == [5, 6, 7]
    assert read_steps(tmp_path, []) == kept


def test_the_run_directory_is_an_option() -> None:
    job = o.job(o.COMMAND_SPEC)
    assert job.spec
    words = shlex.split(build_entrypoint(job, job.spec))
    assert words[words.index("--run-directory") + 1].endswith(f"/runs/{job.name}-{job.uid[:8]}")
