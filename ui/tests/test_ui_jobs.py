"""A job as the page shows it: its row, and its state with pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlt_api.validation.resolved_spec import build_resolved_spec
from rlt_ui.defaults import find_changed
from rlt_ui.jobs import MAX_EVENTS, add_command, build_row, describe_job
from rlt_ui.reward_history import RewardHistory
from rlt_ui.timeline import build_timeline

EXAMPLES = Path(__file__).parents[2] / "examples"


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
    assert describe_job(job, [], [])["config"] == job["spec"]


def test_the_state_has_checks_attempts_and_pods(job: dict[str, Any]) -> None:
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"restartCount": 2}],
    }
    pod = {"metadata": {"name": "sum-head"}, "spec": {"nodeName": "a"}, "status": status}
    found = describe_job(job, [pod], [])
    assert found["pods"] == [{"name": "sum-head", "node": "a", "phase": "Running", "ready": True, "restarts": 2}]
    assert found["attempts"] == job["status"]["attempts"]
    assert found["preflight"] == job["status"]["preflight"]
    assert found["source"] == "job team-a/sum"


def test_the_timeline_has_all_attempts_and_the_one_that_runs() -> None:
    failed = {"number": 1, "startTime": at(0), "completionTime": at(5), "reason": "OutOfMemory", "step": 7}
    disrupted = {"number": 2, "completionTime": at(9), "reason": "Disrupted", "disruption": "PodDeleted"}
    status = {"startTime": at(0), "attempts": [failed, disrupted], "phase": "Running", "progress": {"step": 8}}
    first, second, third = build_timeline({**status, "activeSince": at(11)})
    assert (first["end"] - first["start"], first["outcome"], first["reason"]) == (300, "Failed", "OutOfMemory")
    assert (second["start"], second["outcome"], second["reason"]) == (None, "Disrupted", "PodDeleted")
    assert (third["number"], third["start"] - first["start"], third["end"], third["step"]) == (3, 660, None, 8)
    assert len(build_timeline({**status, "phase": "Pending"})) == 2  # the next attempt waits for its cluster
    assert len(build_timeline({**status, "phase": "Failed"})) == 2


def test_the_timeline_of_a_job_without_restarts_has_its_only_attempt() -> None:
    assert build_timeline({"phase": "Provisioning"}) == []
    (only,) = build_timeline({"phase": "Succeeded", "startTime": at(0), "completionTime": at(1)})
    assert (only["number"], only["end"] - only["start"], only["outcome"]) == (1, 60, "Succeeded")


def at(minute: int) -> str:
    return f"2026-01-01T00:{minute:02}:00Z"


def test_the_row_has_the_rewards_of_the_steps_that_were_seen(job: dict[str, Any]) -> None:
    def read(step: int, reward: float | None, uid: str = "1") -> dict[str, Any]:
        progress = {"step": step, "metrics": {} if reward is None else {"reward": reward}}
        return {"metadata": {**job["metadata"], "uid": uid}, "status": {**job["status"], "progress": progress}}

    history = RewardHistory()
    for step, reward in ((0, None), (1, 0.1), (1, 0.1), (2, 0.2), (4, 0.4), (3, 0.3)):
        history.record([read(step, reward)])
    assert build_row(job, history.get(read(3, 0.3)))["rewards"] == [0.1, 0.2, 0.3]  # step 4 was before a restart
    history.record([read(1, 0.7, uid="2")])  # another job of the same name
    assert history.get(read(3, 0.3)) == []
    assert history.get(read(1, 0.7, uid="2")) == [0.7]


def test_the_state_has_events(job: dict[str, Any]) -> None:
    metadata = {"name": "sum.1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    own = {"metadata": metadata, "type": "Warning", "reason": "Failed", "message": "No.", "count": 3}
    own["lastTimestamp"] = "2026-01-01T00:02:00Z"
    series = {"metadata": metadata, "type": "Normal", "reason": "Queued", "series": {"count": 2}, "lastTimestamp": None}
    assert describe_job(job, [], [own, series])["events"] == [
        {"time": "2026-01-01T00:02:00Z", "count": 3, "type": "Warning", "reason": "Failed", "message": "No."},
        {"time": "2026-01-01T00:00:00Z", "count": 2, "type": "Normal", "reason": "Queued", "message": ""},
    ]
    assert len(describe_job(job, [], [own] * 200)["events"]) == MAX_EVENTS


def test_a_note_has_the_command_that_reads_the_volume_of_a_job_that_has_ended(job: dict[str, Any]) -> None:
    example: dict[str, Any] = yaml.safe_load((EXAMPLES / "01-arithmetic-grpo.yaml").read_text())
    metadata = {**job["metadata"], "uid": "1", "generation": 1, "resourceVersion": "1"}
    job = {**example, "metadata": metadata, "status": {}}
    assert add_command("No metrics.", job) == "No metrics."  # it has not started
    ended = {**job, "status": {"startTime": at(0), "phase": "Failed"}}
    assert add_command("No metrics.", ended) == "No metrics. `rlt report sum -n team-a` reads the volume."
    in_bucket = {**ended, "spec": {**job["spec"], "storage": {"bucket": "s3://runs/a"}}}
    assert add_command("No metrics.", in_bucket).startswith("No metrics. The bucket has the records")


def test_pods_that_are_not_readable_are_not_shown_as_absent(job: dict[str, Any]) -> None:
    assert describe_job(job, None, None)["pods"] is None
    assert describe_job(job, [], [])["pods"] == []


def test_the_fields_that_differ_from_their_defaults_are_listed() -> None:
    spec = {
        "model": {"path": "Qwen/Qwen3-8B", "dtype": "bfloat16"},
        "data": {"preset": "gsm8k", "maxPromptLength": None},
        "rewards": [{"name": "exact", "weight": 1.0}, {"name": "length", "weight": 0.5}],
        "training": {"totalSteps": 9, "warmup": {"steps": 3}},
        "unknown": {"field": 1},
    }
    defaults = {"rewards[0].weight", "data.maxPromptLength", "unknown.field"}
    assert not defaults & set(find_changed(spec))
    differing = {"model.path", "data.preset", "rewards[0].name", "rewards[1].name", "rewards[1].weight"}
    assert find_changed(spec)["rewards[1].weight"] == 1.0
    assert differing | {"training.totalSteps", "training.warmup.steps"} <= set(find_changed(spec))


def test_of_a_resolved_spec_without_settings_no_setting_of_the_algorithm_differs() -> None:
    model = {"path": "Qwen/Qwen3-8B"}
    data = {"preset": "gsm8k"}
    cluster = {"workers": [{"replicas": 1, "resources": {"cpu": "8", "memory": "64Gi"}}]}
    training = {"totalSteps": 9, "trainBatchSize": 64}
    resolved = build_resolved_spec({"model": model, "data": data, "cluster": cluster, "training": training}, None)
    changed = find_changed(resolved)
    assert not [path for path in changed if path.startswith(("algorithm", "rollout", "observability"))]
    assert {"model.path", "data.preset", "training.totalSteps"} <= set(changed)
