"""The status as kstatus reads it, by which kubectl plugins, Argo CD and Flux decide whether a job is in progress.

The rules, in this order (https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md, and
checkGenericProperties in pkg/kstatus/status/generic.go): an object that is being deleted is Terminating; one whose
observedGeneration is not its generation is InProgress; then the first condition that is True of Reconciling
(InProgress) and Stalled (Failed); everything else is Current.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

import observed as o
import pytest

from rlt_api.blocks.operations import FailurePolicy
from rlt_api.status.conditions import ConditionType, Reason
from rlt_core.kuberay import KubeRay
from rlt_operator.observation import Observed, Ray, Rejection
from rlt_operator.reconcile.plan import plan


def kstatus(manifest: dict[str, Any]) -> str:
    metadata = manifest["metadata"]
    status = manifest["status"]
    if "deletionTimestamp" in metadata:
        return "Terminating"
    if "observedGeneration" in status and status["observedGeneration"] != metadata["generation"]:
        return "InProgress"
    for condition in status["conditions"]:
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    return "Current"


def as_stored(observed: Observed) -> dict[str, Any]:
    """The job after this reconciliation."""
    after = o.after(observed).job
    return {"metadata": {"generation": after.generation}, "status": after.status.to_json()}


def gone(observed: Observed) -> Observed:
    return replace(o.after(observed), cluster=None, pods=(), ray=None)


WRONG = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}
DONE = replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log()))
BROKEN = replace(o.STARTED, ray=o.ended("FAILED", "boom"))
RETRIED = o.changed(BROKEN, failure_policy=FailurePolicy(max_restarts=1))
CHECKED = replace(o.READY, job=o.job({**o.SPEC, "preflight": {"level": "basic"}}), ray=o.checks("RUNNING"))
CHECKS_FAILED = replace(CHECKED, ray=o.checks("FAILED"))
CANCELLED = replace(o.STARTED, job=replace(o.STARTED.job, cancel_requested=True))
LATE = o.changed(o.STARTED, active_deadline_seconds=0)
STATES: dict[str, tuple[Observed, str]] = {
    "new": (o.FRESH, "InProgress"),
    "provisioning": (o.PROVISIONING, "InProgress"),
    "submitted": (o.READY, "InProgress"),
    "checked": (CHECKED, "InProgress"),
    "checks failed, its pods end": (CHECKS_FAILED, "Failed"),
    "running": (o.RUNNING, "Current"),
    "unreachable": (replace(o.STARTED, ray=Ray(unreachable="x")), "InProgress"),
    "succeeded, its pods end": (DONE, "InProgress"),
    "succeeded": (gone(DONE), "Current"),
    "failed, its pods end": (BROKEN, "Failed"),
    "failed": (gone(BROKEN), "Failed"),
    "failed, with a restart left": (RETRIED, "InProgress"),
    "restarting": (o.after(RETRIED), "InProgress"),
    "the next attempt": (gone(RETRIED), "InProgress"),
    "suspending": (o.suspend(o.STARTED), "InProgress"),
    "suspended": (gone(o.suspend(o.STARTED)), "Current"),
    "invalid": (Observed(o.job(WRONG)), "Failed"),
    "no runtime": (Observed(o.job({**o.SPEC, "runtimeRef": {"name": "x"}})), "Failed"),
    "no KubeRay": (replace(o.FRESH, kuberay_installed=False), "Failed"),
    "no agent-sandbox": (replace(o.FRESH, agent_sandbox_installed=False), "Failed"),
    "KubeRay too old": (replace(o.FRESH, kuberay=KubeRay(frozenset())), "Failed"),
    "rejected": (replace(o.FRESH, rejection=Rejection("no")), "Failed"),
    "queued": (replace(o.FRESH, cluster=o.cluster(suspend=True)), "InProgress"),
    "being cancelled": (CANCELLED, "InProgress"),
    "cancelled": (replace(o.after(CANCELLED), ray=o.ended("STOPPED")), "Failed"),
    "too late": (LATE, "InProgress"),
    "stopped at its deadline": (replace(o.after(LATE), ray=o.ended("STOPPED")), "Failed"),
}


@pytest.mark.parametrize("state", STATES)
def test_kstatus_of_every_state(state: str) -> None:
    observed, expected = STATES[state]
    assert kstatus(as_stored(observed)) == expected


@pytest.mark.parametrize("state", STATES)
def test_a_job_is_never_both_stalled_and_reconciling(state: str) -> None:
    true = {each["type"] for each in as_stored(STATES[state][0])["status"]["conditions"] if each["status"] == "True"}
    assert not {"Stalled", "Reconciling"} <= true


@pytest.mark.parametrize("state", STATES)
def test_observed_generation_equals_the_specs(state: str) -> None:
    stored = as_stored(STATES[state][0])
    assert stored["status"]["observedGeneration"] == stored["metadata"]["generation"]
    edited = {**stored, "metadata": {"generation": stored["metadata"]["generation"] + 1}}
    assert kstatus(edited) == "InProgress"


@pytest.mark.parametrize("state", STATES)
def test_conditions_follow_kep_1623(state: str) -> None:
    """metav1.Condition (k8s.io/apimachinery pkg/apis/meta/v1/types.go): its fields and their patterns."""
    found = as_stored(STATES[state][0])["status"]["conditions"]
    assert len({each["type"] for each in found}) == len(found)
    for each in found:
        fields = {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}
        assert set(each) == fields
        assert each["type"] in list(ConditionType)
        assert each["status"] in ("True", "False", "Unknown")
        assert each["reason"] in list(Reason)
        assert len(each["message"]) <= 32768


@pytest.mark.parametrize("reason", Reason)
def test_reasons_are_in_camel_case(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason)


@pytest.mark.parametrize("enum", [Reason, ConditionType])
def test_every_reason_and_condition_is_documented(enum: type[StrEnum]) -> None:
    (body,) = (node.body for node in ast.parse(inspect.getsource(enum)).body if isinstance(node, ast.ClassDef))
    documented = [
        node.targets[0].id
        for node, after in itertools.pairwise(body)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(after, ast.Expr)
    ]
    assert documented == [member.name for member in enum]


@pytest.mark.parametrize("state", STATES)
def test_last_transition_time_changes_with_the_status(state: str) -> None:
    before = o.after(STATES[state][0])
    later = plan(o.suspend(before), o.NOW + timedelta(hours=1)).status
    assert later
    old = {each.type: each for each in before.job.status.conditions}
    for each in later.conditions:
        if each.type not in old:
            continue
        moved = each.status != old[each.type].status
        assert (each.last_transition_time != old[each.type].last_transition_time) == moved
