"""Which ConfigMaps with programs are deleted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from rlt_core.children.programs import build_programs, name_programs
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.reconcile.unused_programs import delete_unused_programs, find_unused

CURRENT = name_programs()
OLD = "rlt-programs-000000000000"


def test_the_programs_of_a_namespace_without_jobs_are_unused() -> None:
    assert find_unused([("a", CURRENT), ("b", CURRENT)], set(), {"b"}) == [("a", CURRENT)]


def test_programs_of_another_version_stay_until_no_cluster_mounts_them() -> None:
    found = [("a", OLD), ("b", OLD)]
    assert find_unused(found, {("a", OLD), ("b", CURRENT)}, {"a", "b"}) == [("b", OLD)]


@dataclass
class Api:
    """An API server with some RayClusters."""

    clusters: list[Manifest]
    deleted: list[str] = field(default_factory=list)

    async def list(self, path: str, **query: str) -> list[Manifest]:
        assert (path, query["labelSelector"]) == (api_paths.ray_clusters("demo"), f"rlt.dev/programs={CURRENT}")
        return self.clusters

    async def delete(self, path: str, *, uid: str) -> None:
        self.deleted.append(path)


@pytest.mark.parametrize("is_mounted", [True, False])
async def test_programs_stay_if_the_api_server_has_a_cluster_that_the_cache_lacks(is_mounted: bool) -> None:
    """After an upgrade, the cache of the new leader may be behind what the earlier one has created."""
    cache = Cache(lambda key: None)
    programs = build_programs("demo")
    cache.programs.put({**programs, "metadata": {**programs["metadata"], "uid": "1", "resourceVersion": "1"}})
    api = Api([{"metadata": {"name": "sum"}}] if is_mounted else [])
    await delete_unused_programs(cast(KubernetesApi, api), cache)
    assert api.deleted == ([] if is_mounted else [api_paths.config_map("demo", CURRENT)])
