"""spec.rolloutReplicas: the number of pods that only generate changes while the program runs.

* which pods KubeRay deletes, and when the list of their names is emptied;
* their end is not a disruption, and the attempt continues;
* pods that cannot be added are reported, and fail nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.job import parse_job
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.conditions import Event, find_condition
from rlt_operator.manifests import parse_ray_cluster
from rlt_operator.observation import GroupSize, NamespaceUse, Observed, Pod, Ray
from rlt_operator.reconcile.plan import plan
from rlt_operator.reconcile.reported_step import keep_undisturbed
from rlt_operator.reconcile.scale import scale_group
from rlt_operator.scaling import Scaling, build_patch, choose_replicas

TRAIN, ENGINES = (
    {"name": name, "resources": {"cpu": "1", "memory": "4Gi"}, **numbers}
    for name, numbers in (("train", {"replicas": 1}), ("engines", {"replicas": 3, "minReplicas": 1, "maxReplicas": 5}))
)
SPEC: dict[str, Any] = {
    **o.SPEC,
    "rollout": {"mode": "separate", "workerGroup": "engines"},
    "cluster": {**o.SPEC["cluster"], "workers": [TRAIN, ENGINES]},
}
HEAD = o.pods()[0]


def pod(name: str, *, age: int = 0, ready: bool = True, **changes: Any) -> Pod:
    """A pod of the group engines, created `age` seconds ago."""
    made = Pod(
        f"sum-engines-{name}",
        f"uid-{name}",
        o.CLUSTER_UID,
        is_head=False,
        deleting=False,
        phase="Running",
        ready=ready,
        node="node",
        cluster_name="sum",
        group="engines",
        created=o.NOW - timedelta(seconds=age),
    )
    return replace(made, **changes)


TRAINER = replace(pod("t"), name="sum-train-t", group="train")
OLDEST = pod("a", age=300)
OLD = pod("b", age=200)
NEW = pod("c", age=100)


def size(replicas: int, *deleting: Pod) -> tuple[GroupSize, ...]:
    return (GroupSize("train", 1), GroupSize("engines", replicas, tuple(each.name for each in deleting)))


def running(*pods: Pod, groups: tuple[GroupSize, ...] = size(3), spec: dict[str, Any] = SPEC) -> Observed:
    """A job with three engines whose program runs."""
    fresh = Observed(o.job(spec))
    return o.after(replace(fresh, cluster=o.cluster(groups=groups), pods=(HEAD, TRAINER, *pods), ray=o.running(40)))


def wants(observed: Observed, replicas: int) -> Observed:
    """The observation after spec.rolloutReplicas was changed."""
    status = observed.job.status
    stored = o.manifest({**SPEC, "rolloutReplicas": replicas}) | {"status": status.to_json()}
    return replace(observed, job=parse_job(stored))


AUTOSCALED = {**SPEC, "cluster": {**SPEC["cluster"], "workers": [TRAIN, {**ENGINES, "autoscale": True}]}}


def reports(pods: int, proposed: int | None, *, spec: dict[str, Any] = AUTOSCALED) -> Observed:
    """A job with three engines, whose program reports a broken rule for `pods` pods with this proposal."""
    broken = {"rule": "generationBound", "evidence": "0.95", "pods": pods, "proposed": proposed}
    return replace(running(OLDEST, OLD, NEW, spec=spec), ray=program(broken_rules=[broken]))


def program(**changes: Any) -> Ray:
    return replace(o.running(), progress=o.report(50, **changes))


def follow(observed: Observed, **changes: Any) -> tuple[RLTrainingJobStatus, Scaling | None]:
    """The status after a reconciliation, and the change of the RayCluster in the next one."""
    stored = plan(observed, o.NOW).status
    assert stored
    manifest = o.manifest({**AUTOSCALED, **changes}) | {"status": stored.to_json()}
    return stored, scaling_of(replace(observed, job=parse_job(manifest)))


def status_of(observed: Observed) -> RLTrainingJobStatus:
    return observed.job.status


def scaling_of(observed: Observed) -> Scaling | None:
    return plan(observed, o.NOW).scale


def ready_of(observed: Observed) -> tuple[str, str, str]:
    found = find_condition(status_of(observed), C.CLUSTER_READY)
    assert found
    return found.status, found.reason, found.message


def scaled(replicas: int, *names: Pod, before: tuple[GroupSize, ...] = size(3)) -> Scaling:
    return Scaling(o.CLUSTER_UID, before[1], replicas, tuple(each.name for each in names))


THREE = running(OLDEST, OLD, NEW)


def test_nothing_changes_without_a_wish() -> None:
    assert scaling_of(THREE) is None
    assert scaling_of(wants(THREE, 3)) is None


def test_the_ray_cluster_gets_more_pods() -> None:
    assert scaling_of(wants(THREE, 5)) == scaled(5)
    assert scaling_of(wants(THREE, 99)) == scaled(5), "an API server without the rules has stored it"


@pytest.mark.parametrize(
    ("pods", "replicas", "deleted"),
    [
        ((OLDEST, OLD, NEW), 2, (NEW,)),
        ((OLDEST, OLD, NEW), 1, (NEW, OLD)),
        ((OLDEST, replace(OLD, ready=False), NEW), 2, (OLD,)),
        ((OLDEST, replace(OLD, ready=False), replace(NEW, ready=False, node=None)), 2, (NEW,)),
        ((OLDEST, OLD), 2, ()),
        ((OLDEST, OLD, replace(NEW, deleting=True)), 1, (OLD,)),
    ],
    ids=["newest", "two", "not ready", "without a node", "one is missing", "one ends"],
)
def test_the_pods_to_delete_are_named(pods: tuple[Pod, ...], replicas: int, deleted: tuple[Pod, ...]) -> None:
    assert scaling_of(wants(running(*pods), replicas)) == scaled(replicas, *deleted)


def test_the_names_are_removed_when_the_pods_are_gone() -> None:
    removed = size(2, NEW)
    for left in ((NEW,), (replace(NEW, deleting=True),)):
        assert scaling_of(wants(running(OLDEST, OLD, *left, groups=removed), 2)) is None
    gone = wants(running(OLDEST, OLD, groups=removed), 2)
    assert scaling_of(gone) == scaled(2, before=removed)
    assert scaling_of(replace(gone, cluster=o.cluster(groups=size(2)))) is None


def test_a_change_keeps_the_names_of_pods_that_end() -> None:
    ending = replace(NEW, deleting=True)
    shrinking = running(OLDEST, OLD, ending, groups=size(2, NEW))
    before = size(2, NEW)
    assert scaling_of(wants(shrinking, 1)) == scaled(1, NEW, OLD, before=before)
    assert scaling_of(wants(shrinking, 4)) == scaled(4, NEW, before=before)
    undone = wants(running(OLDEST, OLD, NEW, groups=before), 3)
    assert scaling_of(undone) == scaled(3, NEW, before=before), "KubeRay may have deleted it"


def test_a_removed_pod_is_not_a_disruption_and_the_attempt_goes_on() -> None:
    ending = replace(NEW, deleting=True)
    removed = o.after(wants(running(OLDEST, OLD, ending, groups=size(2, NEW)), 2))
    status = status_of(removed)
    assert (status.disruption, status.phase, status.attempts) == (None, Phase.RUNNING, [])
    assert ready_of(removed) == ("True", Reason.READY, "The head and 3 of 3 workers are ready.")
    failed = o.after(replace(removed, ray=o.ended("FAILED", "boom")))
    assert [each.disruption for each in status_of(failed).attempts] in ([], [None])
    assert status_of(failed).disruption is None


def test_another_pod_that_is_lost_meanwhile_is_a_disruption() -> None:
    lost = replace(OLD, deleting=True)
    observed = o.after(wants(running(OLDEST, lost, replace(NEW, deleting=True), groups=size(2, NEW)), 2))
    disruption = status_of(observed).disruption
    assert disruption
    assert disruption.worker_group == "engines"
    assert OLD.name in disruption.message


@pytest.mark.parametrize("change", [
    {"cluster": o.cluster(groups=size(3), deleting=True)},
    {"cluster": o.cluster(groups=size(3), suspend=False)},
    {"cluster": o.cluster(groups=size(3), suspend=True, elastic=True)},
    {"cluster": o.cluster(groups=())},
    {"ray": o.ended("SUCCEEDED", o.final_log())},
], ids=["deleted", "admitted by Kueue", "evicted by Kueue", "another RayCluster", "ended"])  # fmt: skip
def test_the_number_stays(change: dict[str, Any]) -> None:
    assert scaling_of(replace(wants(THREE, 5), **change)) is None


def test_a_suspended_job_keeps_the_number_for_its_next_attempt() -> None:
    suspended = o.suspend(wants(THREE, 5))
    assert scaling_of(suspended) is None
    assert suspended.job.spec
    groups = build_ray_cluster(suspended.job, suspended.job.spec)["spec"]["workerGroupSpecs"]
    numbers = [[group[key] for key in ("minReplicas", "replicas", "maxReplicas")] for group in groups]
    assert numbers == [[1, 1, 1], [1, 5, 5]]


@pytest.mark.parametrize(("proposed", "replicas"), [(4, 4), (9, 5), (2, 2), (1, 1)])
def test_autoscale_sets_the_proposed_number_within_the_bounds(proposed: int, replicas: int) -> None:
    observed = reports(3, proposed)
    assert scaling_of(observed) is None, "the number is stored first"
    status, change = follow(observed)
    assert status.rollout_replicas == replicas
    assert change is not None
    assert change.replicas == replicas


def test_a_chosen_number_stays_until_the_program_has_its_pods_and_a_rule_is_broken_again() -> None:
    before = reports(3, 4)
    chosen, _ = follow(before)
    again = replace(before, job=parse_job(o.manifest(AUTOSCALED) | {"status": chosen.to_json()}))
    for ray in (reports(3, 5).ray, program(), None):
        assert choose_replicas(replace(again, ray=ray)) is None
        assert follow(replace(again, ray=ray))[0].rollout_replicas == 4
    assert choose_replicas(replace(again, ray=reports(4, 5).ray)) == 5


def test_the_next_attempt_starts_with_the_chosen_number() -> None:
    chosen, _ = follow(reports(3, 4))
    job = parse_job(o.manifest(AUTOSCALED) | {"status": chosen.to_json()})
    assert job.spec
    assert [group.replicas for group in job.spec.cluster.workers] == [1, 4]


def test_the_number_of_the_user_has_precedence() -> None:
    _, change = follow(reports(3, 4), rolloutReplicas=2)
    assert change == scaled(2, NEW)
    _, change = follow(reports(3, 4), rolloutReplicas=None)
    assert change == scaled(4)


def test_a_proposal_changes_nothing_without_autoscale_or_for_another_number() -> None:
    assert choose_replicas(reports(3, 4, spec=SPEC)) is None
    assert choose_replicas(reports(2, 4)) is None
    assert choose_replicas(reports(3, None)) is None
    assert choose_replicas(reports(3, 3)) is None
    admitted = replace(reports(3, 4), cluster=o.cluster(groups=size(3), suspend=False))
    assert choose_replicas(admitted) is None, "Kueue would evict the RayCluster"
    assert choose_replicas(replace(admitted, cluster=o.cluster(groups=size(3), suspend=False, elastic=True))) == 4


def test_an_elastic_ray_cluster_in_a_queue_gets_more_pods_which_wait_for_admission() -> None:
    more = wants(THREE, 4)
    before, after = (o.cluster(groups=size(number), suspend=False, elastic=True) for number in (3, 4))
    assert scaling_of(replace(more, cluster=before)) == scaled(4)
    gated = pod("d", ready=False, phase="Pending", unschedulable="Scheduling is blocked due to non-empty gates")
    waiting = replace(
        more,
        job=replace(more.job, queue="team-a"),
        cluster=after,
        pods=(*more.pods, gated),
        queue_message="insufficient unused quota for cpu",
    )
    status, reason, message = ready_of(o.after(waiting))
    assert (status, reason) == ("True", Reason.WORKERS_MISSING)
    assert message.endswith("Waiting for admission by queue team-a: insufficient unused quota for cpu")


def test_a_kueue_without_elastic_jobs_is_reported() -> None:
    fixed = replace(wants(THREE, 4), cluster=o.cluster(groups=size(3), suspend=False))
    _, reason, message = ready_of(o.after(fixed))
    assert reason == Reason.WORKERS_MISSING
    assert "Kueue has admitted this number of pods" in message


@pytest.mark.parametrize(("use", "text"), [
    (NamespaceUse("tenants", 40, 32, 16), "of which other Ray clusters have 32."),
    (None, "0/3 nodes are available"),
], ids=["quota", "scheduler"])  # fmt: skip
def test_pods_that_cannot_be_added_are_reported_and_fail_nothing(use: NamespaceUse | None, text: str) -> None:
    more = replace(wants(THREE, 4), namespace_use=use)
    assert scaling_of(more) == (scaled(4) if use is None else None)
    if use is None:
        waiting = pod("d", ready=False, phase="Pending", unschedulable="0/3 nodes are available: 3 Insufficient cpu.")
        more = replace(more, cluster=o.cluster(groups=size(4)), pods=(*more.pods, waiting))
    planned = plan(more, o.NOW)
    status, reason, message = ready_of(o.after(more))
    assert (status, reason) == ("True", Reason.WORKERS_MISSING)
    assert message.startswith("The head and 4 of 5 workers are ready. ")
    assert text in message
    assert planned.status
    assert planned.status.phase == Phase.RUNNING
    assert planned.delete_cluster is None
    assert planned.stop is None
    assert planned.events == (Event("Warning", Reason.WORKERS_MISSING, message),)
    assert ready_of(o.after(wants(o.after(more), 3)))[1] == Reason.READY


def test_a_report_alone_does_not_delay_pods_that_wait_for_accelerators() -> None:
    full = replace(wants(THREE, 4), namespace_use=NamespaceUse("tenants", 40, 32, 16))
    assert keep_undisturbed(full, plan(full, o.NOW), "8", (), o.NOW) is None
    assert keep_undisturbed(THREE, plan(THREE, o.NOW), "8", (), o.NOW) is not None


class Api:
    """An API server with one RayCluster."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.stored = stored
        self.status = 200
        self.patches: list[list[dict[str, Any]]] = []

    async def get(self, path: str) -> dict[str, Any]:
        return self.stored

    async def patch(self, path: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        self.patches.append(operations)
        if self.status != 200:
            raise ApiError(self.status, "the resourceVersion does not match")
        return self.stored


@pytest.fixture
def stored() -> dict[str, Any]:
    job = o.job(SPEC)
    assert job.spec
    built = build_ray_cluster(job, job.spec)
    added = {"uid": o.CLUSTER_UID, "resourceVersion": "12", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {**built, "metadata": {**built["metadata"], **added}}


def test_the_patch_fails_if_the_ray_cluster_has_changed(stored: dict[str, Any]) -> None:
    patch = build_patch(stored, scaled(2, NEW))
    assert patch == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "12"},
        {"op": "replace", "path": "/spec/workerGroupSpecs/1/replicas", "value": 2},
        {"op": "add", "path": "/spec/workerGroupSpecs/1/scaleStrategy", "value": {"workersToDelete": [NEW.name]}},
    ]
    assert build_patch(stored, replace(scaled(2), cluster_uid="another")) is None
    assert build_patch(stored, scaled(2, before=size(4))) is None, "the cache was behind"
    assert build_patch(stored, scaled(2, before=size(3, NEW))) is None


async def test_the_ray_cluster_is_patched(stored: dict[str, Any]) -> None:
    api = Api(stored)
    cache = Cache(lambda key: None)
    await scale_group(cast(KubernetesApi, api), cache, o.job(SPEC), scaled(2, NEW))
    assert api.patches == [build_patch(stored, scaled(2, NEW))]
    assert cache.ray_clusters.get(("demo", "sum")) == parse_ray_cluster(stored)

    api.status = 409
    await scale_group(cast(KubernetesApi, api), cache, o.job(SPEC), scaled(2, NEW))
    api.status = 403
    with pytest.raises(ApiError):
        await scale_group(cast(KubernetesApi, api), cache, o.job(SPEC), scaled(2, NEW))


def test_the_groups_of_a_ray_cluster_are_read(stored: dict[str, Any]) -> None:
    assert parse_ray_cluster(stored).groups == size(3)
    stored["spec"]["workerGroupSpecs"][1]["scaleStrategy"] = {"workersToDelete": [NEW.name]}
    assert parse_ray_cluster(stored).groups == size(3, NEW)
    assert parse_ray_cluster(stored).removed_by_scaling == {NEW.name}
