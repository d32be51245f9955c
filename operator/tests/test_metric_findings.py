"""Rules over the metrics: findings and events while the program runs, and the pause of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_core.knowledge.entries import load_entries
from rlt_operator.conditions import METRIC_CODES, find_condition, list_current_events
from rlt_operator.diagnosis.metric_findings import find_broken_rules
from rlt_operator.observation import Observed, Ray, RayJob
from rlt_operator.reconcile.plan import plan
from rlt_pod.report.metric_rules import DEFAULTS

EVIDENCE = "Since step 81, for 10 steps or more, actor/kl_loss is above 2: 2.5 at step 81"
PAUSES: dict[str, Any] = {
    **o.SPEC,
    "storage": {"claimName": "runs"},
    "checkpoint": {"saveFreq": 10},
    "observability": {"metricRules": {"klRunaway": {"action": "pause"}}},
}


def broken(*rules: str, step: int = 90, **changes: Any) -> Ray:
    found = [{"rule": rule, "evidence": EVIDENCE} for rule in rules]
    report = o.report(step, broken_rules=found, **changes)
    return Ray(job=RayJob("RUNNING", start_ms=1767323000000), progress=report)


def started(spec: dict[str, Any]) -> Observed:
    return o.after(replace(o.RUNNING, job=replace(o.job(spec), status=o.READY.job.status)))


def condition_of(status: RLTrainingJobStatus, type: C) -> tuple[str, str]:
    condition = find_condition(status, type)
    assert condition
    return condition.status, condition.reason


def codes(observed: Observed) -> list[str]:
    return [each.code for each in observed.job.status.findings]


def test_each_rule_has_an_entry_in_the_knowledge_base() -> None:
    entries = {entry.code: entry for entry in load_entries() if entry.topic == "metrics"}
    assert entries.keys() == METRIC_CODES
    for rule in DEFAULTS:
        assert f"spec.observability.metricRules.{rule}." in entries[rule[0].upper() + rule[1:]].observation


def test_a_broken_rule_is_a_finding_with_one_event_while_the_program_runs() -> None:
    first = plan(replace(o.STARTED, ray=broken("klRunaway")), o.NOW)
    assert first.status
    (finding,) = first.status.findings
    assert (finding.code, finding.severity, finding.evidence) == ("KlRunaway", "warning", EVIDENCE)
    assert "spec.algorithm.klLossCoef" in finding.remedy
    assert [(event.type, event.reason) for event in first.events] == [("Warning", "KlRunaway")]
    assert first.events[0].message == f"{finding.message} {EVIDENCE}."
    assert first.status.phase == Phase.RUNNING
    observed = o.after(replace(o.STARTED, ray=broken("klRunaway")))
    later = plan(replace(observed, ray=broken("klRunaway", step=91, updated="2026-01-02T03:05:05Z")), o.NOW)
    assert later.status
    assert (later.status.findings, later.events) == ([finding], ())
    both = plan(replace(observed, ray=broken("klRunaway", "truncation")), o.NOW)
    assert [event.reason for event in both.events] == ["Truncation"]


def test_a_finding_ends_with_the_report_of_a_healthy_step() -> None:
    observed = o.after(replace(o.STARTED, ray=broken("klRunaway")))
    healthy = o.after(replace(observed, ray=o.running(92)))
    assert (codes(observed), codes(healthy)) == (["KlRunaway"], [])


def test_a_new_operator_creates_the_events_that_may_be_missing() -> None:
    status = o.after(replace(o.STARTED, ray=broken("klRunaway"))).job.status
    assert "KlRunaway" in [event.reason for event in list_current_events(status, o.NOW)]


def test_rules_of_a_newer_program_and_repeated_rules_are_ignored() -> None:
    found = find_broken_rules(broken("klRunaway", "klRunaway", "lossOfALaterVersion").progress)
    assert [each.code for each in found] == ["KlRunaway"]


def test_the_failures_of_an_attempt_precede_its_broken_rules() -> None:
    log = "RuntimeError: CUDA error: an illegal memory access was encountered\nrlt-progress "
    report = broken("klRunaway").progress
    assert report
    ended = o.ended("FAILED", log + report.model_dump_json(by_alias=True))
    assert codes(o.after(replace(o.STARTED, ray=ended))) == ["IllegalMemoryAccess", "KlRunaway"]


def test_a_job_that_succeeds_keeps_the_rules_that_are_broken_at_its_end() -> None:
    line = o.report(200, stage="finished", broken_rules=[{"rule": "entropyCollapse", "evidence": "x"}])
    done = o.after(replace(o.STARTED, ray=o.ended("SUCCEEDED", f"rlt-progress {line.model_dump_json(by_alias=True)}")))
    assert codes(done) == ["EntropyCollapse"]
    assert codes(o.after(replace(done, cluster=None, pods=(), ray=None))) == ["EntropyCollapse"]


def test_a_pause_stops_the_program_and_releases_the_cluster() -> None:
    decided = plan(replace(started(PAUSES), ray=broken("truncation", "klRunaway")), o.NOW)
    assert decided.status
    assert decided.status.pause
    assert (decided.stop, decided.delete_cluster, decided.requeue_after) == (None, None, 0)  # first it is recorded
    pause = decided.status.pause
    assert (pause.rule, pause.step, pause.generation, pause.evidence) == ("klRunaway", 90, 1, EVIDENCE)
    stopping = o.after(replace(started(PAUSES), ray=broken("truncation", "klRunaway")))
    assert plan(stopping, o.NOW).stop == "sum-99999999"
    releasing = replace(stopping, ray=o.ended("STOPPED"))
    assert plan(releasing, o.NOW).delete_cluster == o.CLUSTER_UID
    paused = plan(replace(o.after(releasing), cluster=None, pods=(), ray=None), o.NOW)
    assert paused.status
    assert paused.status.phase == Phase.SUSPENDED
    assert condition_of(paused.status, C.SUSPENDED) == ("True", Reason.PAUSED_BY_RULE)
    assert [each.code for each in paused.status.findings] == ["KlRunaway", "Truncation"]
    assert (paused.status.message or "").startswith(
        f"Paused after step 90 by spec.observability.metricRules.klRunaway: {EVIDENCE}. To resume"
    )
    assert "`rlt resume sum`" in (paused.status.message or "")
    assert ("Warning", "PausedByRule") in [(event.type, event.reason) for event in paused.events]
    assert (paused.status.pending_since, paused.status.active_since) == (None, None)


def pause() -> Observed:
    stopped = replace(o.after(replace(started(PAUSES), ray=broken("klRunaway"))), ray=o.ended("STOPPED"))
    return o.after(replace(o.after(stopped), cluster=None, pods=(), ray=None))


def test_a_paused_job_stays_paused_until_its_spec_changes() -> None:
    paused = pause()
    assert plan(paused, o.NOW).status is None
    assert plan(paused, o.NOW).apply == ()
    resumed = o.changed(paused, ttl_seconds_after_finished=60)
    assert [each["kind"] for each in plan(o.after(resumed), o.NOW).apply][-1] == "RayCluster"
    assert o.after(resumed).job.status.pause is None
    assert ("Normal", "Resumed") in [(event.type, event.reason) for event in plan(resumed, o.NOW).events]


def test_spec_suspend_replaces_a_pause() -> None:
    suspended = o.after(o.suspend(pause()))
    assert suspended.job.status.pause is None
    assert condition_of(suspended.job.status, C.SUSPENDED) == ("True", Reason.SUSPEND_REQUESTED)
    resumed = o.after(o.suspend(suspended, False))
    assert resumed.job.status.phase != Phase.SUSPENDED


def test_a_resumption_waits_until_the_pause_completes() -> None:
    stopping = o.after(replace(started(PAUSES), ray=broken("klRunaway")))
    edited = o.suspend(o.suspend(stopping), False)
    assert plan(edited, o.NOW).stop == "sum-99999999"
    gone = replace(o.after(replace(edited, ray=o.ended("STOPPED"))), cluster=None, pods=(), ray=None)
    assert [each["kind"] for each in plan(gone, o.NOW).apply][-1] == "RayCluster"


@pytest.mark.parametrize(
    "ray",
    [
        broken("truncation"),
        broken("klRunaway", stage="exporting"),
        broken("klRunaway", step=200),
        o.running(),
    ],
    ids=["a rule that warns", "after the training", "the last step", "a healthy step"],
)
def test_a_job_is_not_paused_without_a_cause(ray: Ray) -> None:
    assert o.after(replace(started(PAUSES), ray=ray)).job.status.pause is None


def test_a_rule_that_warns_does_not_pause() -> None:
    assert o.after(replace(o.STARTED, ray=broken(*DEFAULTS))).job.status.pause is None


@pytest.mark.parametrize("order", [1, -1])
def test_the_rules_that_damage_the_policy_most_come_first_in_a_full_status(order: int) -> None:
    assert codes(o.after(replace(o.STARTED, ray=broken(*[*DEFAULTS][::order])))) == [
        "KlRunaway",
        "EntropyCollapse",
        "RewardHacking",
        "NoLearningSignal",
        "GradientSpikes",
        "OffPolicyDrift",
        "Truncation",
        "GenerationBound",
    ]


def test_the_priorities_of_the_rules_differ() -> None:
    assert len({entry.priority for entry in load_entries() if entry.code in METRIC_CODES}) == len(METRIC_CODES)
