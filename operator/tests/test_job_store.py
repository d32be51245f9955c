"""Large jobs, and jobs above the memory of a namespace, are kept by reference and read when needed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from reconcile_loop import KEY, PATH, FakeApi, Loop

from rlt_core.job import Manifest
from rlt_operator.cache import job_store
from rlt_operator.cache.job_store import MAX_JOB_CHARACTERS, REFERENCE, JobStore


def make(name: str, version: int, text: str = "", *, namespace: str = "demo") -> Manifest:
    metadata = {"namespace": namespace, "name": name, "uid": name, "resourceVersion": str(version), "generation": 1}
    return {"metadata": {**metadata, "managedFields": [{"manager": "kubectl"}]}, "spec": {"text": text}}


def describe(store: JobStore, *names: str, namespace: str = "demo") -> list[bool]:
    """Whether each job is whole."""
    found = [store.get_manifest((namespace, name)) for name in names]
    return [each is not None and REFERENCE not in each for each in found]


def test_a_large_job_is_kept_by_reference() -> None:
    store = JobStore()
    assert store.put(make("small", 1))
    assert store.put(make("large", 2, "x" * MAX_JOB_CHARACTERS))
    assert describe(store, "small", "large") == [True, False]
    assert store.count_characters("demo") < 1000
    assert store.put(make("large", 3, "y" * MAX_JOB_CHARACTERS)), "a change is noticed"
    assert store.put(make("large", 4))
    assert describe(store, "large") == [True]


def test_the_jobs_of_a_namespace_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "MAX_NAMESPACE_CHARACTERS", 3000)
    store = JobStore()
    for version, name in enumerate(("a", "b", "c"), start=1):
        store.put(make(name, version, "x" * 1000))
    store.put(make("a", 4, "x" * 1000, namespace="other"))
    assert describe(store, "a", "b", "c") == [True, True, False]
    assert describe(store, "a", namespace="other") == [True]
    store.remove(make("a", 5))
    store.put(make("b", 6, "y" * 1000))
    store.put(make("c", 7, "y" * 1000))
    assert describe(store, "b", "c") == [True, True]
    store.forget_namespace("demo")
    assert store.count_characters("demo") == 0


async def test_a_large_job_is_reconciled_as_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole manifest is read from the API server."""
    api = FakeApi()
    small = Loop(copy.deepcopy(api))
    await small.run()
    monkeypatch.setattr(job_store, "MAX_JOB_CHARACTERS", 100)
    large = Loop(api)
    await large.run()
    assert large.api.writes == small.api.writes
    assert PATH in large.api.reads
    kept: dict[str, Any] | None = large.cache.get_job(KEY)
    assert kept
    assert kept.keys() == {"metadata", REFERENCE}
