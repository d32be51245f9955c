"""plan() returns a plan for every observation and settles: properties over combinations of partial observations."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import observed as o
from hypothesis import given, settings
from hypothesis import strategies as st

from rlt_api.blocks.operations import FailurePolicy, Preflight
from rlt_api.findings.finding import Finding
from rlt_api.status.conditions import Reason
from rlt_core.fabric.nodes import Node
from rlt_core.kuberay import KubeRay
from rlt_operator.observation import (
    Config,
    Container,
    KubeRayCondition,
    Observed,
    Pod,
    Ray,
    RayJob,
    RayPreflight,
    RayStacks,
    RayStep,
    Rejection,
    Termination,
    WarningEvent,
)
from rlt_operator.reconcile.plan import plan
from rlt_pod.dump_stacks import PREFIX
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

ECC = "(Rank pid=1, ip=10.0.0.1) RuntimeError: CUDA error: uncorrectable ECC error encountered"
WORDS = st.sampled_from(["", "0/2 nodes are available", "x" * 5000])

containers = st.builds(
    Container,
    name=st.just("ray-worker"),
    waiting_reason=st.sampled_from([None, "ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError"]),
    waiting_message=st.none() | WORDS,
    termination=st.none() | st.builds(Termination, st.just("OOMKilled"), st.integers(0, 137), st.just("last output")),
    restarts=st.integers(0, 3),
)
pods = st.builds(
    Pod,
    name=st.sampled_from(["sum-head-a", "sum-worker-b"]),
    uid=st.sampled_from([o.HEAD_UID, "2"]),
    cluster_uid=st.sampled_from([None, o.CLUSTER_UID, "other"]),
    is_head=st.booleans(),
    deleting=st.booleans(),
    phase=st.sampled_from(["Pending", "Running", "Failed"]),
    ready=st.booleans(),
    unschedulable=st.none() | WORDS,
    message=st.none() | WORDS,
    containers=st.lists(containers, max_size=2).map(tuple),
    node=st.sampled_from([None, "node-1", "node-2"]),
    ip=st.sampled_from([None, "10.0.0.1"]),
    disruption=st.sampled_from([None, "DeletionByTaintManager"]),
    cluster_name=st.sampled_from([None, "sum", "other"]),
)
clusters = st.builds(
    o.cluster,
    owner_uid=st.sampled_from([None, o.UID, "other"]),
    owner_kind=st.sampled_from([None, "RLTrainingJob"]),
    deleting=st.booleans(),
    has_status=st.booleans(),
    suspend=st.sampled_from([None, False, True]),
    resumed=st.sampled_from([None, o.NOW, o.NOW + timedelta(minutes=1)]),
    conditions=st.lists(st.just(KubeRayCondition("ReplicaFailure", "FailedCreate", "quota")), max_size=1).map(tuple),
)
ray_jobs = st.builds(RayJob, st.sampled_from(["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]))
reports = st.none() | st.builds(
    o.report,
    step=st.integers(0, 200),
    seconds_per_step=st.sampled_from([None, 0.0, 1e9]),
    updated=st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05", "yesterday"]),
    broken_rules=st.sampled_from([[], [{"rule": "klRunaway", "evidence": "x"}]]),
)
CHECKS = f'{PREFLIGHT_PREFIX}[{{"name": "ranks", "result": "failed", "message": "x", "pods": ["sum-head-a"]}}]'
STACKS = f'{PREFIX}{{"directory": "/mnt", "processes": 1, "pods": 1, "missing": []}}'
rays = st.builds(
    Ray,
    unreachable=st.none() | WORDS,
    job=st.none() | ray_jobs,
    log=st.sampled_from([None, "", "rlt-progress {", o.final_log(), ECC]),
    progress=reports,
    stacks=st.none() | st.builds(RayStacks, ray_jobs, st.sampled_from([None, "", STACKS])),
    step=st.none()
    | st.builds(RayStep, st.sampled_from(["sum-99999999-prepare-data", "other"]), ray_jobs, st.none() | WORDS),
    preflight=st.none() | st.builds(RayPreflight, ray_jobs, st.sampled_from([None, "", CHECKS])),
)
FINDING = Finding("spec.new", "1", "Extra inputs are not permitted", "change it")
UNREADABLE = replace(o.job(), spec=None, findings=(FINDING,))
QUEUED = o.job({**o.SPEC, "scheduling": {"queueName": "team-a"}})
RUNTIMELESS = o.job({**o.SPEC, "runtimeRef": {"name": "x"}})
seconds = st.sampled_from([None, 1, 10**6])
edits = st.fixed_dictionaries(
    {
        "suspend": st.booleans(),
        "active_deadline_seconds": seconds,
        "pending_deadline_seconds": seconds,
        "ttl_seconds_after_finished": seconds,
        "preflight": st.builds(Preflight, only=st.booleans(), level=st.sampled_from([None, "basic", "full"])),
        "failure_policy": st.builds(
            FailurePolicy,
            max_restarts=st.integers(0, 2),
            max_disruptions=st.sampled_from([None, 0, 1]),
            progress_deadline_seconds=st.sampled_from([None, 0, 1]),
            keep_cluster_seconds=st.sampled_from([0, 60]),
            exclude_faulty_nodes=st.booleans(),
        ),
    }
)
EARLIER = o.NOW - timedelta(hours=1)
FAILED = replace(o.STARTED, ray=o.ended("FAILED", "boom"))
RETRIED = o.after(o.changed(FAILED, failure_policy=FailurePolicy(max_restarts=1)))
EVICTED = (*o.pods()[:2], replace(o.pods()[2], deleting=True, disruption="EvictionByEvictionAPI"))
DISRUPTED = o.after(replace(o.STARTED, pods=EVICTED))
EARLIER_ATTEMPT = RETRIED.job.status.attempts[0].model_copy(update={"ray_cluster_uid": "other"})
CANCELLED = o.after(replace(o.STARTED, job=replace(o.STARTED.job, cancel_requested=True)))
HUNG = o.after(o.changed(o.READY, failure_policy=FailurePolicy(progress_deadline_seconds=60)), now=EARLIER)
HUNG = o.after(o.after(replace(HUNG, ray=o.running()), now=EARLIER))
WRITTEN = o.after(replace(HUNG, ray=replace(o.running(), stacks=RayStacks(RayJob("SUCCEEDED"), STACKS))))
CHECKED = replace(o.READY, job=o.job({**o.SPEC, "preflight": {"level": "basic"}}), ray=o.checks("RUNNING"))
UNPREPARED = replace(o.READY, job=o.job(o.PREPARED_SPEC), ray=o.preparing("RUNNING"))
VOLATILE = o.job({**o.PREPARED_SPEC, "storage": {}})
PAUSE_SPEC = {**o.SPEC, "observability": {"metricRules": {"klRunaway": {"action": "pause"}}}}
PAUSE_SPEC |= {"storage": {"claimName": "runs"}, "checkpoint": {"saveFreq": 10}}
KL_RUNAWAY = Ray(job=RayJob("RUNNING"), progress=o.report(broken_rules=[{"rule": "klRunaway", "evidence": "x"}]))
PAUSING = o.after(replace(o.STARTED, job=replace(o.job(PAUSE_SPEC), status=o.STARTED.job.status), ray=KL_RUNAWAY))
PAUSED = o.after(o.after(replace(PAUSING, cluster=None, pods=(), ray=None)))
jobs = st.builds(
    lambda job, edit, status, cancel: replace(
        job, spec=job.spec and job.spec.model_copy(update=edit), status=status, cancel_requested=cancel
    ),
    st.sampled_from(
        [
            o.job(),
            o.job(o.COMMAND_SPEC),
            UNPREPARED.job,
            VOLATILE,
            UNREADABLE,
            QUEUED,
            RUNTIMELESS,
            o.job(PAUSE_SPEC),
            o.job(name="1" * 80),
        ]
    ),
    edits,
    st.sampled_from(
        [
            o.FRESH.job.status,
            o.after(o.FRESH).job.status,
            o.after(o.FRESH, now=EARLIER).job.status,
            o.STARTED.job.status,
            o.READY.job.status,
            o.after(o.READY).job.status,
            o.after(o.suspend(o.STARTED)).job.status,
            o.after(o.suspend(o.STARTED), now=EARLIER).job.status,
            CANCELLED.job.status,
            HUNG.job.status,
            WRITTEN.job.status,
            o.after(WRITTEN).job.status,
            o.after(o.RUNNING, now=EARLIER).job.status,
            o.after(CHECKED).job.status,
            o.after(replace(CHECKED, ray=o.checks("SUCCEEDED", CHECKS))).job.status,
            o.after(UNPREPARED).job.status,
            o.after(replace(UNPREPARED, ray=o.preparing("SUCCEEDED"))).job.status,
            o.after(FAILED).job.status,
            DISRUPTED.job.status,
            o.after(replace(DISRUPTED, ray=o.ended("STOPPED"))).job.status,
            PAUSING.job.status,
            PAUSED.job.status,
            RETRIED.job.status,
            RETRIED.job.status.model_copy(update={"attempts": [EARLIER_ATTEMPT]}),
        ]
    ),
    st.booleans(),
)
mount_warnings = st.builds(
    WarningEvent,
    st.sampled_from([o.HEAD_UID, o.CLUSTER_UID]),
    st.sampled_from(["FailedMount", "InvalidRayClusterSpec"]),
    WORDS,
)
everything = st.builds(
    Observed,
    job=jobs,
    kuberay_installed=st.booleans(),
    agent_sandbox_installed=st.booleans(),
    kuberay=st.none() | st.just(KubeRay(frozenset())),
    nodes=st.sampled_from([(), (Node("node-2"),), (Node("node-2", conditions={"Ready": "True"}),)]),
    config=st.none() | st.just(Config({"training.json": "a digest"}, is_unchanged=False)),
    cluster=st.none() | clusters,
    pods=st.lists(pods, max_size=3).map(tuple),
    warnings=st.lists(mount_warnings, max_size=2).map(tuple),
    ray=st.none() | rays,
    rejection=st.none()
    | st.builds(Rejection, WORDS, st.sampled_from(Reason), st.booleans(), st.none() | st.just(o.NOW)),
)


@settings(deadline=None, max_examples=400)
@given(everything)
def test_every_observation_has_a_plan_and_settles(observed: Observed) -> None:
    first = plan(observed, o.NOW)
    assert first.status is None or first.status.phase
    assert first.requeue_after is None or first.requeue_after >= 0
    settled = o.after(o.after(observed))
    assert plan(settled, o.NOW).status is None


@settings(deadline=None, max_examples=200)
@given(everything)
def test_a_failed_attempt_is_counted_once(observed: Observed) -> None:
    before = observed.job.status
    first = o.after(observed)
    second = o.after(o.after(observed))
    after = second.job.status
    assert after.restarts == first.job.status.restarts
    assert after.disruptions == first.job.status.disruptions
    counted = [(status.restarts or 0) + (status.disruptions or 0) for status in (before, after)]
    assert counted[1] - counted[0] in (0, 1)
    uids = [attempt.ray_cluster_uid for attempt in after.attempts]
    assert len(uids) == len(set(uids))
    assert len(uids) - len(before.attempts) in (0, 1)


@settings(deadline=None, max_examples=200)
@given(everything)
def test_no_plan_creates_and_deletes(observed: Observed) -> None:
    decided = plan(observed, o.NOW)
    assert not (decided.delete_cluster and (decided.apply or decided.submit))
    if decided.delete_cluster:
        assert observed.cluster
        assert observed.cluster.owner_uid == observed.job.uid
