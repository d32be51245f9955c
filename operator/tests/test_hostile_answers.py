"""Heads belong to tenants: whatever a head answers, the job has a plan, and its deadlines, suspension and cancellation
hold."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import observed as o
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlt_api.blocks.operations import FailurePolicy
from rlt_api.model import attribute_docstrings
from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.conditions import ConditionType
from rlt_core.ray_http import MAX_LOG_BYTES, Head, Request
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.observation import Observed, Ray
from rlt_operator.ray.jobs import observe_ray
from rlt_operator.reconcile.plan import plan
from rlt_pod.dump_stacks import PREFIX
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX, PROGRESS_PREFIX

HEAD = Head("demo", "sum-head-a", "10.0.0.1")
JOB = "sum-99999999"
RUNNING = {"status": "RUNNING", "start_time": 1767323000000, "driver_node_id": "a"}
REPORT = o.report().to_json()
CHECK = {"name": "ranks", "result": "failed", "message": "x", "pods": ["sum-head-a"]}
STACKS = {"directory": "/mnt", "processes": 1, "pods": 1, "missing": ["sum-head-a"]}
EARLIER = o.NOW - timedelta(hours=1)
TIME = re.compile(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

Answers = Mapping[str, bytes]
"""The body of each answer: job, progress, log, and checks or stacks for the logs of these Ray jobs."""


def ask(answers: Answers, *, before: Ray | None = None, stacks: bool = False, preflight: bool = False) -> Ray:
    """What the operator observes of a head with these answers."""

    async def send(head: Head, request: Request) -> tuple[int, str]:
        kind = "job"
        if request.path == "/progress":
            kind = "progress"
        elif request.path.startswith("/api/v0/logs"):
            kind = "stacks" if "-stacks" in request.path else "checks" if "-preflight" in request.path else "log"
        if kind == "job" and preflight and request.path.endswith(JOB):
            return 404, f"Job {JOB} does not exist"
        return 200, answers[kind][-MAX_LOG_BYTES:].decode(errors="replace")

    ids = {"stacks_id": f"{JOB}-stacks" if stacks else None, "preflight_id": f"{JOB}-preflight" if preflight else None}
    return asyncio.run(observe_ray(send, HEAD, JOB, before=before, **ids))


def encode(value: object) -> bytes:
    return json.dumps(value).encode()


numbers = st.sampled_from([-1, 0, 1, 2**31, 2**63, 10**20, 10**400, 1e308, -1e308, float("nan"), float("inf"), 0.5])
times = st.sampled_from(["0001-01-01T00:00:00Z", "0001-01-01", "9999-12-31T23:59:59-14:00", "yesterday"])
words = times | st.sampled_from(["", "FAILED", "RUNNING", "STOPPED", "training", "x" * 5000, "\0", "\ud800"])
values = st.recursive(
    st.none() | st.booleans() | numbers | words | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def mutated(valid: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The answer with some of its fields replaced."""
    fields = st.sampled_from([*valid, "message", "end_time", "summary", "error"])
    return st.dictionaries(fields, values, max_size=3).map(lambda changes: {**valid, **changes})


statuses = st.sampled_from(["RUNNING", "FAILED", "STOPPED", "SUCCEEDED", "PENDING"])
job_answers = st.builds(lambda job, status: encode({**job, "status": status}), mutated(RUNNING), statuses)
job_answers |= mutated(RUNNING).map(encode) | values.map(encode) | st.binary(max_size=50)
reports = mutated(REPORT) | mutated({**REPORT, "longestStepSeconds": 3.0})
progress_answers = reports.map(encode) | values.map(encode) | st.binary(max_size=50)


NUMBER = b"9" * 5000
"""json.loads raises ValueError for it."""
CHECK_WITH_NUMBER = b'[{"name": "ranks", "result": "failed", "message": "x", "novelty": ' + NUMBER + b"}]"
hostile = st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000, NUMBER, CHECK_WITH_NUMBER])


def logged(prefix: str, parts: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """The output of a program whose last line has this prefix."""
    lines = parts.map(encode) | hostile | st.binary(max_size=50)
    return lines.map(lambda line: b"hello\n" + prefix.encode() + line)


answers = st.fixed_dictionaries(
    {
        "job": job_answers,
        "progress": progress_answers,
        "log": logged(PROGRESS_PREFIX, reports),
        "checks": logged(PREFLIGHT_PREFIX, st.lists(mutated(CHECK), max_size=2)),
        "stacks": logged(PREFIX, mutated(STACKS)),
    }
)
LIMITED = o.changed(o.RUNNING, active_deadline_seconds=60, pending_deadline_seconds=60)
LIMITED = o.changed(LIMITED, failure_policy=FailurePolicy(max_restarts=0, progress_deadline_seconds=1))
STARTED = o.after(LIMITED, now=EARLIER)
STATUS = STARTED.job.status.model_copy(update={"start_time": None})
UNKNOWN_START = replace(STARTED, job=replace(STARTED.job, status=STATUS))
"""The head has not reported when the program started."""
HUNG = o.after(STARTED)
"""The operator has decided to write the stacks."""
CHECKED_JOB = o.job({**o.SPEC, "preflight": {"level": "basic"}, "pendingDeadlineSeconds": 60})
CHECKED = o.recorded(replace(o.READY, job=CHECKED_JOB, ray=Ray()))
WAITING = o.after(CHECKED, now=EARLIER)


def advance(observed: Observed, answers: Answers, *, preflight: bool, seconds: int) -> Observed:
    """Reconcile the job every 30 s, as long as its head answers so."""
    now = o.NOW
    while now < o.NOW + timedelta(seconds=seconds) and not observed.job.has_ended:
        attempt = observed.job.status.current_attempt
        stacks = bool(attempt and attempt.stacks)
        observed = replace(observed, ray=ask(answers, before=observed.ray, stacks=stacks, preflight=preflight))
        observed = o.after(observed, now=now)
        assert_valid_times(observed)
        now += timedelta(seconds=30)
    return observed


def assert_valid_times(observed: Observed) -> None:
    """The API server rejects a status with another format, and with it all that the operator decides."""
    status = observed.job.status
    times = [status.progress.last_updated if status.progress else None, status.start_time, status.completion_time]
    times += [each.last_transition_time for each in status.conditions]
    for time in times:
        assert time is None or (TIME.fullmatch(time) and datetime.fromisoformat(time))


@settings(deadline=None, max_examples=400)
@given(answers, st.sampled_from([(STARTED, False), (UNKNOWN_START, False), (HUNG, False), (WAITING, True)]))
def test_the_deadline_of_a_job_holds_whatever_its_head_answers(answers: Answers, state: tuple[Observed, bool]) -> None:
    observed, preflight = state
    assert advance(observed, answers, preflight=preflight, seconds=900).job.has_ended


INVALID = [
    ({"start_time": "abc"}, "start_time"),
    ({"start_time": 10**20}, "start_time"),
    ({"start_time": [1]}, "start_time"),
    ({"status": "FAILED", "end_time": "x"}, "end_time"),
    ({"status": "FAILED", "message": {}}, "message"),
    ({"status": ["RUNNING"]}, "status"),
    ({"status": "FOO"}, "status"),
]


@pytest.mark.parametrize(("changes", "field"), INVALID)
def test_an_invalid_answer_counts_as_none_and_names_the_field(changes: dict[str, Any], field: str) -> None:
    ray = ask({"job": encode({**RUNNING, **changes}), "progress": encode(REPORT), "log": b""})
    assert ray == Ray(unreachable=ray.unreachable)
    assert ray.unreachable
    assert ray.unreachable.startswith(f"the answer to GET /api/jobs/{JOB} is invalid: {field}: ")
    assert len(ray.unreachable) <= 300


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"longestStepSeconds": 1e308}, "longestStepSeconds"), ({"step": 10**20}, "step"), ({"step": "many"}, "step")],
)
def test_an_invalid_report_counts_as_no_answer(changes: dict[str, Any], field: str) -> None:
    ray = ask({"job": encode(RUNNING), "progress": encode({**REPORT, **changes})})
    assert ray.unreachable
    assert ray.unreachable.startswith(f"the answer to GET /progress is invalid: {field}: ")


def test_the_status_names_what_is_invalid() -> None:
    invalid = ask({"job": encode({**RUNNING, "status": "FOO"})})
    condition = find_condition(o.after(replace(o.STARTED, ray=invalid)).job.status, ConditionType.RUNNING)
    assert condition
    assert (condition.status, condition.reason) == ("Unknown", "RayUnreachable")
    assert "status: Input should be 'PENDING', 'RUNNING'" in condition.message


@pytest.mark.parametrize("request_", ["suspend", "cancel"])
@pytest.mark.parametrize(("changes", "field"), INVALID)
def test_suspension_and_cancellation_hold(changes: dict[str, Any], field: str, request_: str) -> None:
    answers = {"job": encode({**RUNNING, **changes}), "progress": encode(REPORT), "log": b""}
    observed = o.suspend(UNKNOWN_START) if request_ == "suspend" else UNKNOWN_START
    observed = o.changed(observed, active_deadline_seconds=None)
    observed = replace(observed, job=replace(observed.job, cancel_requested=request_ == "cancel"))
    observed = advance(observed, answers, preflight=False, seconds=900)
    if request_ == "cancel":
        assert is_true(observed.job.status, ConditionType.FAILED)
        observed = replace(observed, ray=ask(answers))
    assert plan(observed, o.NOW + timedelta(seconds=900)).delete_cluster == o.CLUSTER_UID


def test_all_fields_of_a_report_are_bounded() -> None:
    schema = ProgressReport.model_json_schema()
    for name in attribute_docstrings(ProgressReport):
        field = schema["properties"][ProgressReport.model_fields[name].alias or name]
        kinds = [each for each in field.get("anyOf", [field]) if each.get("type") not in ("null", None)]
        assert all({"maxLength", "maximum", "maxItems"} & set(kind) for kind in kinds), name
