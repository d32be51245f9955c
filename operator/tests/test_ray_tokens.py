"""The Secret with the token of an attempt: random, created once, never taken from others."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import Any, cast

import observed as o
import pytest

from rlt_api.status.job_status import Attempt
from rlt_core.children.ray_token import KEY, build_ray_token, parse_ray_token
from rlt_core.job import Job, Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.observation import Observed
from rlt_operator.reconcile.children import NameTakenError, write_child
from rlt_operator.reconcile.plan import plan


@dataclass
class Secrets:
    """An API server with Secrets by path."""

    stored: dict[str, Manifest] = field(default_factory=dict)

    async def create(self, path: str, manifest: Manifest) -> Manifest:
        path = f"{path}/{manifest['metadata']['name']}"
        if path in self.stored:
            raise ApiError(409, "already exists")
        self.stored[path] = manifest
        return manifest

    async def get(self, path: str) -> Manifest | None:
        return self.stored.get(path)


def with_attempts(*numbers: int) -> Job:
    job = o.job()
    attempts = [
        Attempt(number=number, ray_cluster_uid=str(number), reason="HeadLost", message="", completion_time="")
        for number in numbers
    ]
    return replace(job, status=job.status.model_copy(update={"attempts": attempts}))


async def create(secrets: Secrets, job: Job) -> str:
    """The name of the Secret that the job has afterwards."""
    manifest = build_ray_token(job)
    await write_child(cast(KubernetesApi, secrets), job, manifest)
    return str(manifest["metadata"]["name"])


async def test_each_attempt_has_its_own_random_token() -> None:
    secrets = Secrets()
    names = [await create(secrets, job) for job in (with_attempts(), with_attempts(1), with_attempts(1, 2))]
    assert names == ["sum-ray-token-1", "sum-ray-token-2", "sum-ray-token-3"]
    tokens = {parse_ray_token(secret, owner_uid=o.UID) or "" for secret in secrets.stored.values()}
    assert len(tokens) == 3
    assert all(len(token) >= 43 and token.isascii() for token in tokens)


async def test_the_token_of_an_attempt_does_not_change() -> None:
    secrets = Secrets()
    await create(secrets, o.job())
    (before,) = [dict(secret) for secret in secrets.stored.values()]
    await create(secrets, o.job())
    assert list(secrets.stored.values()) == [before]
    assert before["immutable"]


FOREIGN: list[dict[str, Any]] = [
    {"type": "Opaque"},
    {"metadata": {"name": "sum-ray-token-1", "ownerReferences": [{"uid": "another"}]}},
    {"metadata": {"name": "sum-ray-token-1"}},
    {"data": {"token": base64.b64encode(b"x").decode()}},
    {"data": {KEY: base64.b64encode(b"\xff").decode()}},
]


@pytest.mark.parametrize("change", FOREIGN, ids=["type", "owner", "no-owner", "key", "not-ascii"])
async def test_a_secret_made_by_others_is_not_used(change: dict[str, Any]) -> None:
    manifest = build_ray_token(o.job()) | {"data": {KEY: base64.b64encode(b"known").decode()}} | change
    secrets = Secrets({api_paths.secret("demo", "sum-ray-token-1"): manifest})
    with pytest.raises(NameTakenError, match="Secret sum-ray-token-1 exists and does not belong to this job"):
        await create(secrets, o.job())
    assert parse_ray_token(manifest, owner_uid=o.UID) is None


def test_a_plan_contains_no_token() -> None:
    (secret,) = [manifest for manifest in plan(o.FRESH, o.NOW).apply if manifest["kind"] == "Secret"]
    assert not {"data", "stringData"} & secret.keys()


def test_an_old_ray_has_no_token() -> None:
    old = o.job({**o.COMMAND_SPEC, "cluster": {**o.SPEC["cluster"], "rayVersion": "2.51.0"}})
    kinds = [manifest["kind"] for manifest in plan(Observed(old), o.NOW).apply]
    assert "Secret" not in kinds
    off = o.job({**o.SPEC, "security": {"rayToken": False}})
    assert "Secret" not in [manifest["kind"] for manifest in plan(Observed(off), o.NOW).apply]
