"""The watch cache against the real API server: pages, changes, expired watches, kinds that are installed later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from apiserver.in_cluster import Kubernetes

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths, client
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache import reflector as reflector_module
from rlt_operator.cache.reflector import EXPIRED, Reflector
from rlt_operator.cache.store import Name, Store, get_name

pytestmark = pytest.mark.apiserver
Changes = asyncio.Queue[tuple[str, bool]]
"""Name of each changed object, and whether it still exists."""


@pytest.fixture
async def api(kubernetes: Kubernetes) -> AsyncIterator[KubernetesApi]:
    api, _ = await client.connect_as_user(kubeconfig=str(kubernetes.cluster.kubeconfig), context=None)
    yield api
    await api.close()


def create(kubernetes: Kubernetes, namespace: str, *names: str) -> None:
    items = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"test": "cache"}}}
        for name in names
    ]
    manifest = {"apiVersion": "v1", "kind": "List", "items": items}
    kubernetes.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(manifest))


def make(namespace: str, path: str) -> tuple[Reflector, Changes]:
    changes: Changes = asyncio.Queue()

    async def find_path() -> str:
        return path

    def on_change(name: Name, manifest: object) -> None:
        changes.put_nowait((name[1], manifest is not None and store.get(name) is not None))

    store: Store[str] = Store(lambda item: item["metadata"]["uid"], get_name)
    return Reflector("configmaps", store, find_path, on_change, {"labelSelector": "test=cache"}, namespace), changes


async def test_pages_changes_and_deletions_during_an_expired_watch(
    kubernetes: Kubernetes, namespace: str, api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test itself answers 410: this API server still has every change since its start."""
    monkeypatch.setattr(client, "PAGE_SIZE", 2)
    watch = api.watch
    expired = [ApiError(EXPIRED, "too old resource version")]

    def watch_later(path: str, **query: str) -> AsyncIterator[tuple[str, Manifest]]:
        if expired:
            raise expired.pop()
        return watch(path, **query)

    create(kubernetes, namespace, "a", "b", "c", "d", "e")
    reflector, changes = make(namespace, api_paths.config_maps(namespace))
    watching = asyncio.create_task(reflector.run(api))
    assert [await changes.get() for _ in range(5)] == [(name, True) for name in "abcde"]
    await asyncio.to_thread(kubernetes.kubectl, "delete", "configmap", "a", "-n", namespace)
    assert await changes.get() == ("a", False)

    watching.cancel()
    await asyncio.to_thread(kubernetes.kubectl, "delete", "configmap", "b", "-n", namespace)
    await asyncio.to_thread(create, kubernetes, namespace, "f")
    monkeypatch.setattr(api, "watch", watch_later)
    watching = asyncio.create_task(reflector.run(api))
    assert [await changes.get() for _ in range(2)] == [("f", True), ("b", False)]
    watching.cancel()


async def test_a_kind_that_is_installed_later_is_noticed(
    kubernetes: Kubernetes, namespace: str, api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "UNKNOWN_INTERVAL_S", 0.2)
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "laters.test.rlt.dev"},
        "spec": {
            "group": "test.rlt.dev",
            "scope": "Namespaced",
            "names": {"plural": "laters", "kind": "Later"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    reflector, changes = make(namespace, f"/apis/test.rlt.dev/v1/namespaces/{namespace}/laters")
    watching = asyncio.create_task(reflector.run(api))
    await reflector.synced.wait()
    assert not reflector.store.served
    later = {"apiVersion": "test.rlt.dev/v1", "kind": "Later", "metadata": {"name": "x", "labels": {"test": "cache"}}}

    def install() -> None:
        kubernetes.kubectl("create", "-f", "-", input=json.dumps(crd))
        kubernetes.kubectl("wait", "--for=condition=Established", "crd/laters.test.rlt.dev", "--timeout=300s")
        kubernetes.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(later))

    try:
        await asyncio.to_thread(install)
        assert await asyncio.wait_for(changes.get(), 60) == ("x", True)
        assert reflector.store.served
    finally:
        watching.cancel()
        kubernetes.kubectl("delete", "crd", "laters.test.rlt.dev", "--ignore-not-found")
