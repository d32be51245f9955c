"""maxPerNamespace of an RLRuntime: jobs whose namespace has no accelerators left wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import RuntimeSnapshot
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.job import Job, Manifest
from rlt_core.kubernetes.client import KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.conditions import find_condition
from rlt_operator.observation import NamespaceUse
from rlt_operator.reconcile.namespace_use import claim_accelerators
from rlt_operator.reconcile.plan import creates_cluster, plan

GPUS = "nvidia.com/gpu"


@dataclass
class Api:
    """An API server with one RLRuntime, and RayClusters that the watch has not delivered."""

    spec: Manifest = field(default_factory=lambda: {"maxPerNamespace": {"accelerators": 40}})
    undelivered: list[Manifest] = field(default_factory=list)
    lists: int = 0

    async def get(self, path: str) -> Manifest:
        return {"metadata": {"name": "tenants"}, "spec": self.spec}

    async def list_pages(self, path: str) -> AsyncIterator[tuple[list[Manifest], str]]:
        self.lists += 1
        yield self.undelivered, "1"


def job(name: str, *, namespace: str = "demo") -> Job:
    """A job with 16 accelerators."""
    runtime = RuntimeSnapshot(name="tenants", generation=1, spec={})
    spec = {**o.ON_GPUS, "runtimeRef": {"name": "tenants"}}
    return replace(o.job(spec, name=name, runtime=runtime), namespace=namespace)


def cluster(owner: Job) -> dict[str, Any]:
    assert owner.spec
    built = build_ray_cluster(owner, owner.spec)
    added = {"uid": owner.name, "resourceVersion": "1", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {**built, "metadata": {**built["metadata"], **added}}


@pytest.fixture
def cache() -> Cache:
    return Cache(lambda key: None)


async def claim(cache: Cache, owner: Job, api: Api | None = None) -> NamespaceUse:
    found = await claim_accelerators(cast(KubernetesApi, api or Api()), cache, owner)
    assert found
    return found


async def test_the_accelerators_of_ray_clusters_are_counted(cache: Cache) -> None:
    cache.ray_clusters.put(cluster(job("a")))
    cache.ray_clusters.put(cluster(job("elsewhere", namespace="other")))
    assert await claim(cache, job("b")) == NamespaceUse("tenants", 40, used=16, needed=16)


async def test_a_job_that_starts_at_the_same_time_is_counted_once(cache: Cache) -> None:
    jobs = [job(name) for name in "abc"]
    assert [(await claim(cache, each)).fits for each in jobs] == [True, True, False]
    cache.ray_clusters.put(cluster(jobs[0]))
    assert (await claim(cache, jobs[2])).used == 32
    assert (await claim(cache, jobs[1])).fits, "its own claim does not count"
    del cache.claims[("demo", "b")]
    assert (await claim(cache, jobs[2])).fits
    assert cache.claims[("demo", "c")] == Counter({GPUS: 16})


async def test_a_job_that_grows_at_the_same_time_is_counted_with_its_new_pods(cache: Cache) -> None:
    growing = job("a")
    cache.ray_clusters.put(cluster(growing))
    cache.claims[("demo", "a")] = Counter({GPUS: 24})
    assert (await claim(cache, job("b"))).used == 24
    assert (await claim(cache, growing)).used == 16, "of b, and not its own"


async def test_a_new_leader_counts_what_the_leader_before_has_just_created(cache: Cache) -> None:
    api = Api(undelivered=[cluster(job("a")), cluster(job("b"))])
    assert [(await claim(cache, job(name), api)).used for name in "cd"] == [32, 32]
    assert api.lists == 1
    await claim(cache, job("c", namespace="other"), api)
    assert api.lists == 2


async def test_a_runtime_without_a_maximum_does_not_count(cache: Cache) -> None:
    assert await claim_accelerators(cast(KubernetesApi, Api(spec={})), cache, job("a")) is None
    assert await claim_accelerators(cast(KubernetesApi, Api()), cache, o.job()) is None
    assert cache.claims == {}


@pytest.mark.parametrize(
    ("use", "text", "stalled"),
    [
        (NamespaceUse("tenants", 40, 32, 16), "of which other Ray clusters have 32", False),
        (NamespaceUse("tenants", 8, 0, 16), "Use at most 8", True),
    ],
)
def test_a_job_waits_for_accelerators(use: NamespaceUse, text: str, stalled: bool) -> None:
    waiting = replace(o.FRESH, job=job("sum"), namespace_use=use)
    planned = plan(waiting, o.NOW)
    assert not planned.apply
    status = o.after(waiting).job.status
    ready = find_condition(status, C.CLUSTER_READY)
    assert ready
    assert (ready.status, ready.reason) == ("False", Reason.WAITING_FOR_ACCELERATORS)
    assert ready.message.startswith("spec.cluster.workers: 16 accelerators: exceeds the namespace's maximum of")
    assert text in ready.message
    found = find_condition(status, C.STALLED)
    assert (found is not None and found.status == "True") is stalled
    free = replace(waiting, namespace_use=replace(use, maximum=48))
    assert creates_cluster(plan(free, o.NOW))
