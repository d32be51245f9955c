"""The short form of `make bench-operator`: its ratios, with a margin for what they vary between runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[3]
REQUESTS = "requests by the operator per job from apply to Succeeded"
MAX_REQUESTS = 17.0
"""About 14, and progress in a slow run."""
MAX_CREATION_RATIO = 3.0
"""1.0 and 1.2 in two runs."""
MAX_START_RATIO = 5.0
"""2.4 with 100 jobs. With few jobs the intervals at which a head is asked count more."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The rows by what they measure."""
    output = tmp_path_factory.mktemp("bench") / "bench.json"
    command = [sys.executable, "-m", "operator_bench", "--quick", f"--output={output}"]
    path = os.pathsep.join([str(ROOT / "bench"), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return {row["what"]: row for row in json.loads(output.read_text())["rows"]}


def find_figures(rows: dict[str, dict[str, Any]], beginning: str) -> dict[str, Any]:
    (found,) = [row["figures"] for what, row in rows.items() if what.startswith(beginning)]
    return dict(found)


def test_a_job_costs_few_requests(rows: dict[str, dict[str, Any]]) -> None:
    assert find_figures(rows, REQUESTS)["total"] <= MAX_REQUESTS, rows[REQUESTS]["measured"]


def test_a_running_job_costs_its_status_writes_only(rows: dict[str, dict[str, Any]]) -> None:
    found = find_figures(rows, "30 running jobs")
    assert found["reads"] <= 10, "more than the watches that are requested again"
    assert found["other_writes"] <= 0.5


def test_unchanged_jobs_are_not_written_after_a_restart(rows: dict[str, dict[str, Any]]) -> None:
    assert find_figures(rows, "restart with")["job_writes"] == 0


def test_a_raycluster_is_created_about_as_fast_as_for_a_rayjob(rows: dict[str, dict[str, Any]]) -> None:
    assert find_figures(rows, "apply")["p50"] <= MAX_CREATION_RATIO


def test_jobs_start_about_as_fast_as_bare_rayclusters(rows: dict[str, dict[str, Any]]) -> None:
    assert find_figures(rows, "30 jobs")["ratio"] <= MAX_START_RATIO
