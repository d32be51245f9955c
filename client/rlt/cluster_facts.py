"""The facts of a cluster for `rlt doctor`, with read rights alone. Lists are read in pages, up to MAX_OBJECTS."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from rlt.connection import Connection
from rlt_api.schema.crd import GROUP, PLURAL, RUNTIME_PLURAL
from rlt_core.doctor.facts import ClusterFacts, Reading, reduce_node, reduce_pod
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi, UnknownResourceError
from rlt_core.names import SHARD_LABEL

MAX_OBJECTS = 10_000
"""Maximum number of objects of one list."""
PAGE_SIZE = 500
"""kubectl's chunk size."""
TIMEOUT_S = 60.0
"""Maximum time for one list."""
COMPONENTS = "app.kubernetes.io/name in (rlt-operator,rlt-webhook,kuberay-operator,kuberay)"
"""Labels of Deployments: rlt's chart, KubeRay's chart and KubeRay's kustomization."""


@dataclass(frozen=True)
class _List:
    """A list to read. `group`: the API group that must exist, of an optional resource."""

    path: str
    right: str
    """As in a Role: the verb and the resource."""
    query: dict[str, str] = field(default_factory=dict)
    keep: Callable[[Manifest], Manifest] = dict
    """Returns the evaluated parts of an object."""
    group: str | None = None


async def read_cluster_facts(connection: Connection) -> ClusterFacts:
    """Read a cluster for a user of the connection's namespace.

    What is forbidden, missing or slow is noted in its reading. Raises ApiError if the API server does not respond or
    rejects the credentials.
    """
    api = connection.api
    namespace = connection.namespace
    version = await api.get(api_paths.SERVER_VERSION) or {}
    groups = await _read_groups(api)
    lists = build_lists(namespace, groups)
    objects = {
        "kuberay_crd": (api_paths.RAY_CLUSTER_CRD, "get customresourcedefinitions", "ray.io"),
        "job_crd": (f"{api_paths.CRDS}/{PLURAL}.{GROUP}", "get customresourcedefinitions", GROUP),
        "runtime_crd": (f"{api_paths.CRDS}/{RUNTIME_PLURAL}.{GROUP}", "get customresourcedefinitions", GROUP),
        "service_account": (
            api_paths.service_account(namespace, "default"),
            f"get serviceaccounts in namespace {namespace}",
            None,
        ),
    }
    reads = {
        name: _read(partial(_read_list, api, each), each.right, each.group, groups) for name, each in lists.items()
    }
    reads |= {
        name: _read(partial(_read_object, api, path), right, group, groups)
        for name, (path, right, group) in objects.items()
    }
    readings = await asyncio.gather(*reads.values())
    return ClusterFacts(
        namespace=namespace,
        client_version=importlib.metadata.version("rlt"),
        now=datetime.now(UTC),
        server_version=str(version.get("gitVersion")),
        **dict(zip(reads, readings, strict=True)),
    )


def build_lists(namespace: str, groups: dict[str, str]) -> dict[str, _List]:
    """Field of ClusterFacts -> the list. `groups`: API group -> its preferred version."""
    kueue = groups.get("kueue.x-k8s.io", "v1beta1")
    here = f"in namespace {namespace}"
    return {
        "deployments": _List(
            api_paths.DEPLOYMENTS, "list deployments in all namespaces", {"labelSelector": COMPONENTS}
        ),
        "leases": _List(
            api_paths.ALL_LEASES, "list leases in all namespaces", {"fieldSelector": "metadata.name=rlt-operator"}
        ),
        "shard_leases": _List(api_paths.ALL_LEASES, "list leases in all namespaces", {"labelSelector": SHARD_LABEL}),
        "webhooks": _List(api_paths.VALIDATING_WEBHOOKS, "list validatingwebhookconfigurations"),
        "endpoint_slices": _List(
            api_paths.ENDPOINT_SLICES,
            "list endpointslices in all namespaces",
            {"labelSelector": "app.kubernetes.io/name=rlt-webhook"},
        ),
        "nodes": _List(api_paths.NODES, "list nodes", keep=reduce_node),
        "pods": _List(
            api_paths.pods(None),
            "list pods in all namespaces",
            {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
            keep=reduce_pod,
        ),
        "resource_slices": _List(
            api_paths.RESOURCE_SLICES, "list resourceslices", keep=_keep_driver, group="resource.k8s.io"
        ),
        "attachments": _List(
            api_paths.network_attachments(namespace),
            f"list network-attachment-definitions {here}",
            group="k8s.cni.cncf.io",
        ),
        "storage_classes": _List(api_paths.STORAGE_CLASSES, "list storageclasses"),
        "volume_claims": _List(api_paths.pvcs(namespace), f"list persistentvolumeclaims {here}"),
        "runtimes": _List(api_paths.RUNTIMES, "list rlruntimes", group=GROUP),
        "local_queues": _List(
            api_paths.local_queues(namespace, kueue), f"list localqueues {here}", group="kueue.x-k8s.io"
        ),
        "quotas": _List(api_paths.resource_quotas(namespace), f"list resourcequotas {here}"),
        "events": _List(
            api_paths.events(namespace),
            f"list events {here}",
            {"fieldSelector": "involvedObject.kind=Pod,type=Warning"},
        ),
        "daemon_sets": _List(api_paths.DAEMON_SETS, "list daemonsets in all namespaces", keep=_keep_metadata),
    }


async def _read_groups(api: KubernetesApi) -> dict[str, str]:
    """API group -> its preferred version. Every authenticated user may read it (system:discovery)."""
    found = await api.get(api_paths.API_GROUPS) or {}
    return {each["name"]: each["preferredVersion"]["version"] for each in found.get("groups") or []}


async def _read(
    request: Callable[[], Awaitable[Reading]], right: str, group: str | None, groups: dict[str, str]
) -> Reading:
    """The reading of a request, also if it fails."""
    if group is not None and group not in groups:
        return Reading(installed=False)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await request()
    except UnknownResourceError:
        return Reading(installed=False)
    except TimeoutError:
        return Reading(failed=f"no response within {TIMEOUT_S:.0f} s")
    except ApiError as error:
        if error.status == 401:
            raise
        return Reading(forbidden=right) if error.status == 403 else Reading(failed=str(error))


async def _read_list(api: KubernetesApi, each: _List) -> Reading:
    items: list[Manifest] = []
    async for page, _ in api.list_pages(each.path, limit=str(PAGE_SIZE), **each.query):
        items += map(each.keep, page)
        if len(items) > MAX_OBJECTS:
            return Reading(tuple(items[:MAX_OBJECTS]), complete=False)
    return Reading(tuple(items))


async def _read_object(api: KubernetesApi, path: str) -> Reading:
    found = await api.get(path)
    return Reading((found,) if found else ())


def _keep_metadata(manifest: Manifest) -> Manifest:
    return {"metadata": {"name": manifest["metadata"]["name"]}}


def _keep_driver(manifest: Manifest) -> Manifest:
    return {"spec": {"driver": manifest["spec"].get("driver")}}
