"""The condition Promoted: unknown until the end of the job, then final."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import observed as o
import pytest
from planned import condition_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_operator.conditions import find_condition
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import plan
from rlt_pod.report.driver_report import PROGRESS_PREFIX

SUITES = [
    {"name": "math", "every": 20, "beforeTrain": True, "promoteIf": {"gainAbove": 0}},
    {"name": "aime", "every": 20, "promoteIf": {"minimum": 0.5}},
    {"name": "plain", "every": 20},
]
GATED = o.after(replace(o.RUNNING, job=replace(o.job({**o.SPEC, "evaluation": SUITES}), status=o.READY.job.status)))
PASSED = {"math": (True, "mean 0.6"), "aime": (True, "mean 0.7")}


def finished(gates: Mapping[str, tuple[bool | None, str]] | None) -> Ray:
    """The Ray job has succeeded. Its log has the last report. None: no report was readable."""
    found = [{"suite": suite, "passed": passed, "evidence": text} for suite, (passed, text) in (gates or {}).items()]
    line = o.report(200, stage="finished", gates=found).model_dump_json(by_alias=True, exclude_none=True)
    return o.ended("SUCCEEDED", f"{PROGRESS_PREFIX}{line}\n" if gates is not None else "")


def test_a_running_job_is_not_promoted_yet() -> None:
    found = find_condition(GATED.job.status, C.PROMOTED)
    assert found
    assert (found.status, found.reason) == ("Unknown", Reason.GATES_PENDING)


def test_a_job_without_a_gate_has_no_condition() -> None:
    assert find_condition(o.STARTED.job.status, C.PROMOTED) is None


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        (PASSED, ("True", Reason.GATES_PASSED, "math: mean 0.6; aime: mean 0.7")),
        ({**PASSED, "math": (False, "mean 0.1")}, ("False", Reason.GATE_FAILED, "math: mean 0.1")),
        ({**PASSED, "aime": (None, "no file")}, ("False", Reason.GATE_UNKNOWN, "aime: no file")),
        (
            {"math": (False, "mean 0.1"), "aime": (None, "no file")},
            ("False", Reason.GATE_FAILED, "math: mean 0.1; aime: no file"),
        ),
        (
            {"math": (True, "mean 0.6"), "plain": (True, "mean 1")},
            ("False", Reason.GATE_UNKNOWN, "aime: the program has not reported its figures"),
        ),
    ],
)
def test_all_gates_must_pass(gates: dict[str, tuple[bool | None, str]], expected: tuple[str, str, str]) -> None:
    decided = plan(replace(GATED, ray=finished(gates)), o.NOW)
    assert condition_of(decided, C.SUCCEEDED)[0] == "True"
    assert condition_of(decided, C.PROMOTED) == expected


def test_a_success_without_a_report_is_not_promoted() -> None:
    decided = plan(replace(GATED, ray=finished(None)), o.NOW)
    assert condition_of(decided, C.PROMOTED)[:2] == ("False", Reason.GATE_UNKNOWN)


def test_a_promotion_has_one_event() -> None:
    events = plan(replace(GATED, ray=finished(PASSED)), o.NOW).events
    assert [(event.type, event.message) for event in events if event.reason == "Promoted"] == [
        ("Normal", "math: mean 0.6; aime: mean 0.7")
    ]


@pytest.mark.parametrize("gates", [PASSED, {**PASSED, "math": (False, "mean 0.1")}])
def test_the_result_outlives_the_cluster_and_the_operator(gates: dict[str, tuple[bool | None, str]]) -> None:
    """A new operator has the status alone."""
    ended = o.after(replace(GATED, ray=finished(gates)))
    before = find_condition(ended.job.status, C.PROMOTED)
    assert before
    released = o.after(replace(ended, ray=None, cluster=None, pods=()))
    assert find_condition(released.job.status, C.PROMOTED) == before
    assert plan(replace(released), o.NOW).events == ()


def test_the_report_of_an_operator_that_did_not_see_the_run_counts() -> None:
    """The operator was down between the start and the end: the status has no report."""
    observed = replace(GATED, job=replace(GATED.job, status=GATED.job.status.model_copy(update={"progress": None})))
    assert condition_of(plan(replace(observed, ray=finished(PASSED)), o.NOW), C.PROMOTED)[0] == "True"


@pytest.mark.parametrize("ends", ["program", "cancelled"])
def test_a_failed_job_is_not_promoted(ends: str) -> None:
    observed = GATED
    if ends == "program":
        gates = [{"suite": suite, "passed": True, "evidence": "mean 1"} for suite in ("math", "aime")]
        line = o.report(200, stage="exporting", gates=gates).model_dump_json(by_alias=True, exclude_none=True)
        observed = replace(GATED, ray=o.ended("FAILED", f"{PROGRESS_PREFIX}{line}\n"))
    else:
        observed = replace(GATED, job=replace(GATED.job, cancel_requested=True), ray=o.ended("STOPPED"))
    decided = plan(observed, o.NOW)
    assert condition_of(decided, C.FAILED)[0] == "True"
    assert condition_of(decided, C.PROMOTED)[:2] == ("False", Reason.GATE_UNKNOWN)
    after = find_condition(o.after(o.after(observed)).job.status, C.PROMOTED)
    assert after
    assert after.status == "False"


def test_a_secret_in_the_evidence_is_masked() -> None:
    env = [{"name": "API_KEY", "value": "sk-0123456789abcdef"}]
    spec: dict[str, Any] = {**o.SPEC, "evaluation": SUITES[1:2], "cluster": {**o.SPEC["cluster"], "env": env}}
    job = replace(o.job(spec), status=o.READY.job.status)
    observed = replace(o.RUNNING, job=job, ray=finished({"aime": (True, "key sk-0123456789abcdef")}))
    message = condition_of(plan(observed, o.NOW), C.PROMOTED)[2]
    assert message.startswith("aime: key")
    assert "0123456789abcdef" not in message


def test_a_long_evidence_is_bounded() -> None:
    report = o.report(200, gates=[{"suite": "x" * 999, "passed": True, "evidence": "y" * 9999}])
    (gate,) = report.gates
    assert (len(gate.suite), len(gate.evidence)) == (253, 1024)
    many = [{"name": f"s{index}", "every": 1, "promoteIf": {"minimum": 0}} for index in range(16)]
    job = replace(o.job({**o.SPEC, "evaluation": many}), status=o.READY.job.status)
    observed: Observed = replace(o.RUNNING, job=job)
    decided = plan(replace(observed, ray=finished({f"s{index}": (True, "y" * 1024) for index in range(16)})), o.NOW)
    status, _, message = condition_of(decided, C.PROMOTED)
    assert (status, len(message) <= 4096) == ("True", True)
