"""Checkpoints of other frameworks: where they are, and their export after the training."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import observed as o
import pytest
from command_wrapper import Start, end
from job_specs import merged
from openrlhf_jobs import OPENRLHF
from roll_jobs import ROLL
from verl_jobs import VERL
from verl_output import VERL_LINE

from rlt_api.status.job_status import CheckpointStatus
from rlt_core.children.program import build_command
from rlt_core.entrypoint import build_entrypoint, find_checkpoint_directory
from rlt_operator.diagnosis.progress import build_checkpoint, parse_last_report
from rlt_pod.command.checkpoints import read_latest_step


def test_checkpoints_of_verl_are_reported(start: Start, tmp_path: Path) -> None:
    script = f"""
import os
print({VERL_LINE!r}, flush=True)
os.mkdir("checkpoints")
print(35, end="", file=open("checkpoints/latest_checkpointed_iteration.txt", "w"))
print({VERL_LINE.replace("step:34", "step:35")!r})
"""
    out = end(start(script, "--port", "0", "--checkpoints", str(tmp_path / "checkpoints")))[1].decode()
    report = parse_last_report(out)
    assert report
    assert (report.step, report.latest_checkpoint_step) == (35, 35)
    folder = str(tmp_path / "checkpoints")
    assert build_checkpoint(report, "/mnt/rlt/runs/sum") == CheckpointStatus(latest_step=35, path=folder)


SAVE = """
import os
print("step:3 - critic/score/mean:1", flush=True)
os.makedirs("checkpoints/global_step_3")
print(3, end="", file=open("checkpoints/latest_checkpointed_iteration.txt", "w"))
"""
EXPORT = """
import os, sys
print("exporting", sys.argv[1])
os.mkdir("model")
open("model/config.json", "w").close()
"""


def export_options(folder: Path, script: str) -> list[str]:
    command = [sys.executable, "-c", script, f"{folder}/checkpoints/global_step_{{step}}"]
    directory = str(folder / "model")
    options = ["--checkpoints", str(folder / "checkpoints"), "--export-directory", directory]
    return [*options, "--export", json.dumps(command)]


def test_the_latest_checkpoint_is_exported_after_the_training(start: Start, tmp_path: Path) -> None:
    code, out, _ = end(start(SAVE, *export_options(tmp_path, EXPORT)))
    report = parse_last_report(out.decode())
    assert f"exporting {tmp_path}/checkpoints/global_step_3\n" in out.decode()
    assert report
    assert (code, report.stage, report.exported_path) == (0, "finished", str(tmp_path / "model"))


@pytest.mark.parametrize(("script", "code"), [(SAVE, 9), (f"{SAVE}sys.exit(7)", 7), ("", 0)])
def test_a_training_or_export_that_fails_exports_nothing(start: Start, tmp_path: Path, script: str, code: int) -> None:
    """The exit code is from the part that failed. Without a checkpoint there is nothing to export."""
    failing = f"{EXPORT.replace('mkdir', 'path.exists').partition('open')[0]}sys.exit(9)"
    returned, out, _ = end(start(f"import sys{script}", *export_options(tmp_path, failing)))
    report = parse_last_report(out.decode())
    assert (returned, report and report.exported_path) == (code, None)
    assert (b"exporting" in out) == (code == 9)


@pytest.mark.parametrize("content", [None, "", "many"])
def test_unreadable_tracker_has_no_checkpoint(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(content)
    assert read_latest_step(str(tmp_path)) is None


def test_the_tracker_of_deepspeed_names_the_step(tmp_path: Path) -> None:
    (tmp_path / "_actor").mkdir()
    (tmp_path / "_actor/latest").write_text("global_step40")
    assert read_latest_step(str(tmp_path)) == 40


def test_a_checkpoint_of_prime_rl_is_complete_with_its_metadata(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        (tmp_path / f"step_{step}/trainer").mkdir(parents=True)
    for step in (5, 10):
        (tmp_path / f"step_{step}/trainer/.metadata").touch()
    assert read_latest_step(str(tmp_path)) == 10


def test_verl_writes_its_checkpoints_where_they_are_read() -> None:
    job = o.job(VERL)
    assert job.spec
    words = shlex.split(build_entrypoint(job, job.spec))
    folder = words[words.index("--checkpoints") + 1]
    assert f"trainer.default_local_dir={folder}" in words
    assert words[words.index("--") + 1 :][:3] == ["python3", "-m", "verl.trainer.main_ppo"]


@pytest.mark.parametrize(
    ("spec", "start", "later"),
    [
        (VERL, "trainer.resume_mode=resume_path", "trainer.resume_mode=auto"),
        (ROLL, "--", "--checkpoints"),
    ],
    ids=["verl", "roll"],
)
def test_a_job_that_started_from_a_path_resumes_from_its_own_checkpoint(
    spec: dict[str, Any], start: str, later: str
) -> None:
    """verl and ROLL read the path again at each start."""
    name = "checkpoint-5" if spec is ROLL else "global_step_5"
    job = o.job(merged(spec, {"checkpoint": {"resume": "path", "resumeFromPath": f"/mnt/rlt/runs/x/{name}"}}))
    assert job.spec
    first = build_command(job, job.spec)
    own = CheckpointStatus(latest_step=8, path="/mnt/rlt/runs/sum/checkpoints")
    job = replace(job, status=job.status.model_copy(update={"checkpoint": own}))
    assert job.spec
    second = build_command(job, job.spec)
    assert (start in first, later in first, later in second) == (True, False, True)
    assert not any("global_step_5" in word for word in second)


def list_export_words(spec: dict[str, Any]) -> list[str]:
    job = o.job(spec)
    assert job.spec
    words = shlex.split(build_entrypoint(job, job.spec))
    return words[: words.index("--")]


@pytest.mark.parametrize(("overrides", "backend"), [([], "fsdp"), (["model_engine=megatron"], "megatron")])
def test_verls_model_merger_runs_on_a_worker(overrides: list[str], backend: str) -> None:
    words = list_export_words(merged(VERL, {"framework.overrides": overrides, "model.trustRemoteCode": True}))
    command = json.loads(words[words.index("--export") + 1])
    folder = words[words.index("--checkpoints") + 1]
    on_a_worker = ["ray", "job", "submit", "--entrypoint-num-gpus", "1", "--"]
    assert command[:8] == [*on_a_worker, "python3", "-m"]
    assert command[8:] == [
        *("verl.model_merger", "merge", "--backend", backend, "--local_dir", f"{folder}/global_step_{{step}}/actor"),
        *("--target_dir", words[words.index("--export-directory") + 1], "--trust-remote-code"),
    ]


def test_openrlhf_exports_by_itself_and_verl_without_checkpoints_nothing() -> None:
    words = list_export_words(OPENRLHF)
    assert words[words.index("--export-directory") + 1].endswith("/model")
    assert "--export" not in words
    assert "--export-directory" not in list_export_words(merged(VERL, {"checkpoint.saveFreq": -1}))


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["verl.trainer.main_ppo", "trainer.default_local_dir=/checkpoints/a"], "/checkpoints/a"),
        (["verl.trainer.main_ppo", "trainer.default_local_dir=checkpoints"], None),
        (["verl.trainer.main_ppo", "trainer.default_local_dir=$DIR/a"], None),
        (["openrlhf.cli.train_ppo_ray", "--ckpt.path", "/checkpoints/b"], "/checkpoints/b"),
        (["train"], None),
    ],
)
def test_checkpoints_of_a_command_are_found(arguments: list[str], folder: str | None) -> None:
    job = o.job({**o.COMMAND_SPEC, "framework": {"type": "command", "command": ["python3", "-m", *arguments]}})
    assert job.spec
    assert find_checkpoint_directory(job, job.spec) == folder
