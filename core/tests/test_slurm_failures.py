"""The functions of a Slurm script for failures and disruptions, in bash, with programs in the place of Slurm's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_targets import BUILTIN, launch

from rlt_core.targets.slurm_failures import build_failure_functions

SRUN = """#!/bin/bash
# A step runs on all nodes but the one in the file `lost`.
[[ " $* " != *"--nodelist=$(cat lost 2> /dev/null) "* ]]
"""
SCONTROL = """#!/bin/bash
[ "$2" = show ] && echo "JobId=7 ExcNodeList=gpu-9 Features=(null)" && exit
echo "$*" >> scontrol.log
"""
SCRIPT = """set -euo pipefail
files=.
nodes=(gpu-1 gpu-2)
fail() {{ echo "failed: $1"; exit 1; }}
{functions}
{then}
"""


def run(folder: Path, policy: dict[str, Any], *, then: str = 'restart "$(find_lost)"', restarts: int = 0) -> str:
    """Run the functions as the start of job 7 after some restarts, then a command. Returns the output."""
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    functions = build_failure_functions(launch("sum", {**BUILTIN, "failurePolicy": policy}))
    variables = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restarts)}
    command = ["bash", "-c", SCRIPT.format(functions=functions, then=then)]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def read_requests(folder: Path) -> list[str]:
    log = folder / "scontrol.log"
    return log.read_text().splitlines() if log.exists() else []


def test_a_lost_node_is_excluded_and_does_not_count_in_the_restarts(tmp_path: Path) -> None:
    (tmp_path / "lost").write_text("gpu-2")
    policy = {"maxDisruptions": 2, "excludeFaultyNodes": True}
    output = run(tmp_path, policy, then='echo program >> "$failures"; restart "$(find_lost)"', restarts=1)
    assert output == "rlt: the job has lost gpu-2: the job starts again\n"
    assert read_requests(tmp_path) == ["requeue 7", "update JobId=7 ExcNodeList=gpu-9,gpu-2"]
    assert (tmp_path / "failures-7").read_text() == ""


def test_a_lost_node_ends_the_job_after_the_last_disruption(tmp_path: Path) -> None:
    (tmp_path / "lost").write_text("gpu-1")
    output = run(tmp_path, {"maxDisruptions": 1, "maxRestarts": 9}, restarts=1)
    assert output == "failed: the job has lost gpu-1, and spec.failurePolicy.maxDisruptions is 1\n"
    assert read_requests(tmp_path) == []


def test_disruptions_have_no_limit_by_default(tmp_path: Path) -> None:
    (tmp_path / "lost").write_text("gpu-1")
    assert run(tmp_path, {}, restarts=500) == "rlt: the job has lost gpu-1: the job starts again\n"
    assert read_requests(tmp_path) == ["requeue 7"]


def test_a_preemption_of_slurm_counts_as_a_disruption(tmp_path: Path) -> None:
    output = run(tmp_path, {"maxDisruptions": 1}, then="echo runs", restarts=2)
    assert output == "failed: disruption 2 exceeds spec.failurePolicy.maxDisruptions: 1\n"
    assert run(tmp_path, {"maxDisruptions": 1}, then="echo runs", restarts=1) == "runs\n"


@pytest.mark.parametrize(("earlier", "requests"), [([], ["requeue 7"]), (["program"], [])])
def test_an_end_of_ray_and_failures_of_the_program_count_in_the_restarts(
    tmp_path: Path, earlier: list[str], requests: list[str]
) -> None:
    failures = tmp_path / "failures-7"
    failures.write_text("".join(f"{line}\n" for line in earlier))
    run(tmp_path, {"maxRestarts": 1, "maxDisruptions": 0})
    assert read_requests(tmp_path) == requests
    assert failures.read_text().splitlines() == (earlier or ["ray"])
