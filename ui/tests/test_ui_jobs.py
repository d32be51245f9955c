"""A job as the page shows it: its row, and its state with pods."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_ui.jobs import build_row, describe_job


@pytest.fixture
def job() -> dict[str, Any]:
    """A job that runs."""
    return {
        "metadata": {"name": "sum", "namespace": "team-a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"training": {"totalSteps": 9}},
        "status": {
            "phase": "Running",
            "message": "Training.",
            "model": "Qwen3-8B",
            "gpus": 16,
            "progress": {
                "step": 3,
                "totalSteps": 9,
                "eta": "3m",
                "metrics": {"reward": 0.5},
                "lastUpdated": "2026-01-01T00:01:00Z",
            },
            "findings": [{"code": "KlRunaway"}],
            "attempts": [{"number": 1, "reason": "OutOfMemory"}],
            "preflight": [{"name": "disk", "result": "passed", "value": "9 GiB", "message": "Enough."}],
        },
    }


def test_the_row_has_progress_reward_and_time(job: dict[str, Any]) -> None:
    row = build_row(job)
    assert [row[key] for key in ("phase", "step", "totalSteps", "reward", "gpus", "findings", "updated")] == [
        "Running",
        3,
        9,
        0.5,
        16,
        1,
        1767225660.0,
    ]


def test_a_job_that_is_not_reconciled_has_a_row(job: dict[str, Any]) -> None:
    del job["status"]
    row = build_row(job)
    assert (row["phase"], row["step"], row["totalSteps"], row["updated"]) == ("Pending", 0, None, 1767225600.0)
    assert describe_job(job, [])["config"] == job["spec"]


def test_the_state_has_checks_attempts_and_pods(job: dict[str, Any]) -> None:
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"restartCount": 2}],
    }
    found = describe_job(job, [{"metadata": {"name": "sum-head"}, "spec": {"nodeName": "a"}, "status": status}])
    assert found["pods"] == [{"name": "sum-head", "node": "a", "phase": "Running", "ready": True, "restarts": 2}]
    assert found["attempts"] == job["status"]["attempts"]
    assert found["preflight"] == job["status"]["preflight"]
    assert found["source"] == "job team-a/sum"
