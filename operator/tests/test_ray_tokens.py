"""The Secret with the token of an attempt, and the one with the key: created once, and no other Secret is read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import observed as o
import pytest

from rlt_api.status.job_status import Attempt
from rlt_core.children.ray_token import build_ray_token, parse_ray_token
from rlt_core.job import Job, Manifest, get_attempt_number
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.token_key import KEY_BYTES, TokenKey
from rlt_operator.observation import Observed
from rlt_operator.reconcile.children import write_ray_token
from rlt_operator.reconcile.plan import plan
from rlt_operator.token_key import KeyLocation, load_token_key

KEY = TokenKey(b"key")


@dataclass
class Secrets:
    """An API server with Secrets by path."""

    stored: dict[str, Manifest] = field(default_factory=dict)
    error: ApiError | None = None
    """Raised by each creation."""

    async def create(self, path: str, manifest: Manifest) -> Manifest:
        if self.error:
            raise self.error
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
    """The path of the Secret that the job has afterwards."""
    suffix = KEY.derive_suffix(job.uid, get_attempt_number(job.status))
    manifest = build_ray_token(replace(job, token_suffix=suffix))
    await write_ray_token(cast(KubernetesApi, secrets), job, manifest, KEY)
    return f"{api_paths.collection_of(manifest)}/{manifest['metadata']['name']}"


async def test_each_attempt_has_its_own_token() -> None:
    secrets = Secrets()
    paths = [await create(secrets, job) for job in (with_attempts(), with_attempts(1), with_attempts(1, 2))]
    assert list(secrets.stored) == paths
    tokens = [parse_ray_token(secrets.stored[path], owner_uid=o.UID) for path in paths]
    assert tokens == [KEY.derive_token(o.UID, attempt) for attempt in (1, 2, 3)]
    assert [KEY.find_attempt(path.rpartition("/")[2], o.UID) for path in paths] == [1, 2, 3]


async def test_the_token_of_an_attempt_does_not_change() -> None:
    """After a crash between the creation of the Secret and of the RayCluster."""
    secrets = Secrets()
    await create(secrets, o.job())
    (before,) = [dict(secret) for secret in secrets.stored.values()]
    await create(secrets, o.job())
    assert list(secrets.stored.values()) == [before]
    assert before["immutable"]


async def test_another_error_is_raised() -> None:
    secrets = Secrets(error=ApiError(403, "exceeded quota: secrets=10"))
    with pytest.raises(ApiError, match="exceeded quota"):
        await create(secrets, o.job())


LOCATION = KeyLocation("rlt-system", "rlt-ray-token-key")


async def test_the_key_is_created_once() -> None:
    secrets = Secrets()
    first = await load_token_key(cast(KubernetesApi, secrets), LOCATION)
    assert await load_token_key(cast(KubernetesApi, secrets), LOCATION) == first
    (stored,) = secrets.stored.values()
    assert stored["immutable"]
    assert len(first.key) == KEY_BYTES


async def test_a_secret_without_a_key_is_named() -> None:
    path = api_paths.secret(LOCATION.namespace, LOCATION.name)
    secrets = Secrets({path: {"metadata": {"name": LOCATION.name}, "data": {"key": "YWJj"}}})
    with pytest.raises(ValueError, match=r"Secret rlt-ray-token-key, key 'key': has 3 bytes: delete it, or use 32"):
        await load_token_key(cast(KubernetesApi, secrets), LOCATION)


def test_a_plan_contains_no_token() -> None:
    (secret,) = [manifest for manifest in plan(o.FRESH, o.NOW).apply if manifest["kind"] == "Secret"]
    assert not {"data", "stringData"} & secret.keys()


def test_an_old_ray_has_no_token() -> None:
    old = o.job({**o.COMMAND_SPEC, "cluster": {**o.SPEC["cluster"], "rayVersion": "2.51.0"}})
    kinds = [manifest["kind"] for manifest in plan(Observed(old), o.NOW).apply]
    assert "Secret" not in kinds
    off = o.job({**o.SPEC, "security": {"rayToken": False}})
    assert "Secret" not in [manifest["kind"] for manifest in plan(Observed(off), o.NOW).apply]
