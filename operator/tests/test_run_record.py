"""The record of a run: stored before the cluster is released, whatever the head wrote into it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import zlib
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import observed as o
import pytest
from planned import status_of
from reconcile_loop import FakeApi, send

from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.ray_http import Head, RayTokens, Request, UnreachableError
from rlt_core.run_record import MAX_TEXTS, MAX_UNPACKED_BYTES, RunRecord, build_record_map, mask_record, read_record_map
from rlt_operator.cache.cache import Cache
from rlt_operator.lifecycle.run_record import RETRY_S, FoundRecord
from rlt_operator.observation import Observed
from rlt_operator.ray.jobs import observe_ray
from rlt_operator.reconcile.apply import apply
from rlt_operator.reconcile.plan import plan
from rlt_operator.reconcile.run_record import store_record

RECORD: dict[str, Any] = {
    "version": 1,
    "steps": [1, 2],
    "metrics": {"critic/rewards/mean": [0.25, None]},
    "rolloutsStep": 2,
    "rollouts": [{"prompt": "1 + 1 =", "response": "2", "reward": 1.0}],
    "notes": [],
}
RECORD_MAP = api_paths.config_map("demo", "sum-record")
CONFIG_MAPS = api_paths.config_maps("demo")
BUSY = ApiError(500, "etcdserver: request timed out")


def encode(record: object) -> str:
    return base64.b64encode(zlib.compress(json.dumps(record).encode())).decode()


TEXT = encode(RECORD)
ENDED = o.after(replace(o.STARTED, ray=replace(o.ended("SUCCEEDED", o.final_log()), record=TEXT)))
"""The result is in the status, and the cluster exists."""


# When it is stored


def test_the_record_is_stored_with_the_release_of_a_job_that_has_ended() -> None:
    planned = plan(ENDED, o.NOW)
    assert (planned.record, planned.delete_cluster) == (FoundRecord(TEXT, retries=True), o.CLUSTER_UID)


def test_the_record_is_stored_with_the_release_of_a_suspended_job() -> None:
    stopping = o.after(o.suspend(o.STARTED))
    planned = plan(replace(stopping, ray=replace(o.ended("STOPPED"), record=TEXT)), o.NOW)
    assert (planned.record, planned.delete_cluster) == (FoundRecord(TEXT, retries=True), o.CLUSTER_UID)


def test_the_record_is_stored_with_the_release_of_a_failed_attempt() -> None:
    job = o.job({**o.SPEC, "failurePolicy": {"maxRestarts": 1}})
    started = o.after(o.recorded(replace(o.RUNNING, job=job)))
    failed = o.after(replace(started, ray=replace(o.ended("FAILED", "error"), record=TEXT)))
    planned = plan(failed, o.NOW)
    assert failed.job.status.attempts
    assert (planned.record, planned.delete_cluster) == (FoundRecord(TEXT, retries=True), o.CLUSTER_UID)


def test_the_record_of_a_kept_cluster_is_stored_at_the_end_of_the_job_too() -> None:
    job = o.job({**o.SPEC, "failurePolicy": {"keepClusterSeconds": 600}})
    started = o.after(o.recorded(replace(o.RUNNING, job=job)))
    failed = replace(started, ray=replace(o.ended("FAILED", "error"), record=TEXT))
    assert plan(failed, o.NOW).record == FoundRecord(TEXT, retries=False)
    kept = o.after(failed)
    assert (plan(kept, o.NOW).record, plan(kept, o.NOW).delete_cluster) == (None, None)
    planned = plan(kept, o.NOW + timedelta(seconds=600))
    assert (planned.record, planned.delete_cluster) == (FoundRecord(TEXT, retries=False), o.CLUSTER_UID)


def test_a_program_that_runs_and_a_head_without_a_record_store_none() -> None:
    assert plan(replace(o.STARTED, ray=replace(o.running(), record=TEXT)), o.NOW).record is None
    ended = replace(ENDED, ray=o.ended("SUCCEEDED", o.final_log()))
    assert (plan(ended, o.NOW).record, plan(ended, o.NOW).delete_cluster) == (None, o.CLUSTER_UID)


def test_the_release_waits_a_bounded_time_for_the_record() -> None:
    def retries(seconds: float) -> bool:
        record = plan(ENDED, o.NOW + timedelta(seconds=seconds)).record
        return record is not None and record.retries

    assert [retries(seconds) for seconds in (0, RETRY_S - 1, RETRY_S)] == [True, True, False]


# How it is stored


async def run(api: FakeApi, observed: Observed, seconds: float = 0) -> str | None:
    """Apply the plan. Returns the message of what failed."""
    planned = plan(observed, o.NOW + timedelta(seconds=seconds))
    cache = Cache(lambda key: None)
    rejection = await apply(cast(KubernetesApi, api), cache, send, RayTokens(), None, observed.job, planned)
    assert cache.configs.get(("demo", "sum-record")) is None
    return rejection.message if rejection else None


class Api(FakeApi):
    """An API server that records deletions."""

    async def delete(self, path: str, *, uid: str) -> None:
        self.writes.append(f"DELETE {path}")


async def test_the_record_is_stored_before_the_cluster_is_deleted() -> None:
    api = Api()
    assert await run(api, ENDED) is None
    assert api.writes == [RECORD_MAP, f"DELETE {api_paths.ray_cluster('demo', 'sum')}"]
    found = read_record_map(api.objects[RECORD_MAP], o.UID)
    assert found
    assert found.list_steps() == [
        {"step": 1, "critic/rewards/mean": 0.25},
        {"step": 2, "critic/rewards/mean": None},
    ]
    assert (found.rollouts_step, found.rollouts[0]["response"]) == (2, "2")
    assert api.objects[RECORD_MAP]["metadata"]["labels"] == {"rlt.dev/job": "sum"}, "the operator does not watch it"


async def test_a_record_replaces_the_record_of_an_earlier_attempt() -> None:
    api = Api()
    api.objects[RECORD_MAP] = build_record_map(
        ENDED.job, mask_record(encode({**RECORD, "steps": [], "metrics": {}}), ())
    )
    api.objects[RECORD_MAP]["metadata"] |= {"uid": "map", "resourceVersion": "1"}
    assert await run(api, ENDED) is None
    found = read_record_map(api.objects[RECORD_MAP], o.UID)
    assert found
    assert found.steps == [1, 2]


async def test_a_failed_request_is_retried_before_the_cluster_is_deleted_until_its_time_is_over() -> None:
    api = Api(errors={CONFIG_MAPS: BUSY})
    assert await run(api, ENDED) == str(BUSY)
    assert api.writes == []
    assert await run(api, ENDED, seconds=RETRY_S) is None
    assert api.writes == [f"DELETE {api_paths.ray_cluster('demo', 'sum')}"]


async def test_a_rejected_record_does_not_keep_the_cluster(caplog: pytest.LogCaptureFixture) -> None:
    api = Api(errors={CONFIG_MAPS: ApiError(403, "exceeded quota: configmaps")})
    with caplog.at_level(logging.WARNING):
        assert await run(api, ENDED) is None
    assert api.writes == [f"DELETE {api_paths.ray_cluster('demo', 'sum')}"]
    assert "the record of the run is not kept: exceeded quota" in caplog.text


async def test_a_users_config_map_of_this_name_is_not_changed() -> None:
    api = Api()
    users = {"kind": "ConfigMap", "metadata": {"uid": "user", "resourceVersion": "1"}, "data": {"a": "b"}}
    api.objects[RECORD_MAP] = users
    assert await run(api, ENDED) is None
    assert api.objects[RECORD_MAP] == users
    assert read_record_map(users, o.UID) is None


# What a head may write


async def store(text: str, spec: dict[str, Any] = o.SPEC) -> RunRecord | None:
    api = FakeApi()
    await store_record(cast(KubernetesApi, api), o.job(spec), FoundRecord(text, retries=True))
    stored = api.objects.get(RECORD_MAP)
    return read_record_map(stored, o.UID) if stored else None


async def test_secrets_of_the_job_are_masked() -> None:
    spec = {**o.COMMAND_SPEC, "framework": {"type": "command", "command": ["train", "--api-key", "abcdef-123456"]}}
    texts = {"response": "it is abcdef-123456", "rewards": {"abcdef-123456": 1.0}, "token": "hf_abcdefghijklmnopqrstuv"}
    found = await store(encode({**RECORD, "rollouts": [texts], "notes": ["abcdef-123456"]}), spec)
    assert found
    assert found.rollouts == [{"response": "it is ***", "rewards": {"***": 1.0}, "token": "***"}]
    assert found.notes == ["***"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64",
        base64.b64encode(b"not compressed").decode(),
        encode([]),
        encode({**RECORD, "version": 2}),
        encode({**RECORD, "steps": ["1"]}),
        encode({**RECORD, "steps": list(range(401)), "metrics": {}}),
        encode({**RECORD, "metrics": {"a": [1.0]}}),
        encode({**RECORD, "metrics": {"a": ["1", "2"]}}),
        encode({**RECORD, "rollouts": [{}] * 100}),
        encode({**RECORD, "spans": [{"rank": 0}]}),
        encode({**RECORD, "rollouts": [dict.fromkeys(map(str, range(MAX_TEXTS)), "")]}),
        base64.b64encode(zlib.compress(b" " * (MAX_UNPACKED_BYTES + 1))).decode(),
        base64.b64encode(zlib.compress(b"[" * 100_000)).decode(),
        base64.b64encode(zlib.compress(b"9" * 10_000)).decode(),
        TEXT[:40],
    ],
    ids=lambda text: f"{len(text)} {text[:12]}",
)
async def test_an_invalid_record_is_not_stored(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert await store(text) is None
    assert "the record of the run is not kept" in caplog.text


async def test_numbers_that_are_not_finite_are_left_out() -> None:
    text = json.dumps({**RECORD, "metrics": {"a": [1.5, float("nan")], "b": [float("inf"), 1]}}).encode()
    found = await store(base64.b64encode(zlib.compress(text)).decode())
    assert found
    assert found.metrics == {"a": [1.5, None], "b": [None, 1.0]}


def ask(answer: str | None) -> str | None:
    """The record that the operator observes of a head that has ended its program. None: it does not answer."""

    async def respond(head: Head, request: Request) -> tuple[int, str]:
        if "/logs/file" not in request.path:
            return 200, '{"status": "SUCCEEDED", "driver_node_id": "a"}'
        if ".record" not in request.path:
            return 200, "the program's output"
        if answer is None or len(answer) > request.max_bytes:
            assert not request.tail
            raise UnreachableError("timeout")
        return 200, answer

    found = asyncio.run(observe_ray(respond, Head("demo", "head", "10.0.0.1"), "sum-99999999"))
    assert found.job
    assert found.log == "the program's output"
    return found.record


def test_the_record_is_read_beside_the_output_of_the_program() -> None:
    assert ask(TEXT) == TEXT


@pytest.mark.parametrize("answer", [None, "", "x" * 200_000], ids=["silent", "empty", "too large"])
def test_a_head_without_a_record_does_not_change_the_result(answer: str | None) -> None:
    assert ask(answer) is None
    assert status_of(plan(replace(ENDED, ray=o.ended("SUCCEEDED")), o.NOW)).phase == "Succeeded"
