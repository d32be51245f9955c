"""The comparison of the installed CRDs with this version's."""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import Any, cast

import pytest

from rlt_api.schema.crd import build_job_crd, build_runtime_crd
from rlt_core.crd_fields import list_fields, list_missing_fields
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import crd_check, metrics
from rlt_operator.crd_check import CrdCheck, describe_missing_fields

JOBS = build_job_crd()
RUNTIMES = build_runtime_crd()
CURRENT = list_fields(JOBS, "v1alpha1")


def without(*paths: tuple[str, ...]) -> dict[str, Any]:
    """The CRD of RLTrainingJob without these fields."""
    crd = copy.deepcopy(JOBS)
    for *parents, name in paths:
        node = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for parent in parents:
            node = node["properties"][parent]
        node = node.get("items", node)
        del node["properties"][name]
    return crd


def test_the_current_crd_lacks_nothing() -> None:
    assert list_missing_fields(CURRENT, CURRENT) == []


def test_a_missing_field_is_named_once_without_its_subfields() -> None:
    old = without(("status", "network"), ("status", "attempts", "evidence"), ("spec", "rewards"))
    missing = list_missing_fields(list_fields(old, "v1alpha1"), CURRENT)
    assert missing == ["spec.rewards", "status.attempts[].evidence", "status.network"]


def test_a_newer_crd_lacks_nothing() -> None:
    old = list_fields(without(("status", "network")), "v1alpha1")
    assert list_missing_fields(CURRENT, old) == []


def test_an_object_that_accepts_any_field_lacks_nothing() -> None:
    assert list_missing_fields(frozenset({"spec", "spec.*"}), frozenset({"spec", "spec.a", "spec.a.b"})) == []


def test_the_message_is_limited() -> None:
    message = describe_missing_fields("x.rlt.dev", [f"spec.a{number}" for number in range(9)])
    assert message
    assert "lacks spec.a0, spec.a1, spec.a2, spec.a3, spec.a4 and 4 more. Helm does not upgrade CRDs." in message
    assert "kubectl apply --server-side" in message


class FakeApi:
    """An API server with the two CRDs."""

    def __init__(self) -> None:
        self.crds: dict[str, Any] = {"rltrainingjobs.rlt.dev": JOBS, "rlruntimes.rlt.dev": RUNTIMES}

    async def get_large(self, path: str) -> Any:
        found = self.crds[path.removeprefix(f"{api_paths.CRDS}/")]
        if isinstance(found, ApiError):
            raise found
        return found


async def test_an_upgrade_of_the_crd_ends_the_message(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.crds["rltrainingjobs.rlt.dev"] = without(("status", "network"))
    checked = CrdCheck(cast(KubernetesApi, api))
    await checked.check()
    await checked.check()
    assert "it lacks status.network." in (checked.describe() or "")
    gauge = metrics.CRD_MISSING_FIELDS.labels(crd="rltrainingjobs.rlt.dev")
    assert gauge._value.get() == 1
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    api.crds["rltrainingjobs.rlt.dev"] = JOBS
    await checked.check()
    assert checked.describe() is None
    assert gauge._value.get() == 0


async def test_a_change_of_a_crd_is_reported_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time at a check that is INTERVAL_S later. A failed write checks in between."""
    api = FakeApi()
    checked = CrdCheck(cast(KubernetesApi, api))
    calls: list[int] = []
    checked.on_change = lambda: calls.append(len(calls))
    await checked.check()
    checked.checked.set()
    await checked.check()
    assert calls == []
    api.crds["rltrainingjobs.rlt.dev"] = without(("status", "network"))
    monkeypatch.setattr(crd_check, "INTERVAL_S", 3600.0)
    await checked.check()
    await checked.check()
    assert len(calls) == 1
    api.crds["rltrainingjobs.rlt.dev"] = JOBS
    monkeypatch.setattr(crd_check, "INTERVAL_S", 0.0)
    for expected in (2, 3, 3):
        await checked.check()
        assert len(calls) == expected


async def test_a_crd_that_the_first_check_could_not_read_counts_as_changed() -> None:
    """Jobs that the operator has read meanwhile may have the earlier form."""
    api = FakeApi()
    api.crds["rltrainingjobs.rlt.dev"] = ApiError(503, "unavailable")
    checked = CrdCheck(cast(KubernetesApi, api))
    calls: list[None] = []
    checked.on_change = lambda: calls.append(None)
    await checked.check()
    checked.checked.set()
    assert calls == []
    api.crds["rltrainingjobs.rlt.dev"] = JOBS
    await checked.check()
    assert len(calls) == 1


async def test_without_permission_the_check_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.crds["rlruntimes.rlt.dev"] = ApiError(403, "forbidden")
    checked = CrdCheck(cast(KubernetesApi, api))
    await checked.check()
    assert checked.describe() is None
    assert "cannot read CustomResourceDefinition rlruntimes.rlt.dev: forbidden" in caplog.text


class FailingOnce(FakeApi):
    """Its first response has no versions."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = False
        self.repeated = asyncio.Event()

    async def get_large(self, path: str) -> Any:
        if not self.failed:
            self.failed = True
            return {"spec": {}}
        self.repeated.set()
        return await super().get_large(path)


async def test_a_check_that_fails_unexpectedly_is_logged_and_repeated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crd_check, "INTERVAL_S", 0.01)
    api = FailingOnce()
    checking = asyncio.create_task(CrdCheck(cast(KubernetesApi, api)).run())
    async with asyncio.timeout(60):
        await api.repeated.wait()
    checking.cancel()
    assert "cannot check the CRDs" in caplog.text
    assert "KeyError" in caplog.text
