"""reconcile() with an API server in memory, whose requests can fail, and a clock that the test moves."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

import observed as o
from json_patch import apply_patch

from rlt_api.schema.crd import KIND
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core import names
from rlt_core.children.programs import name_programs
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.ray_http import Head, RayTokens, Request
from rlt_core.token_key import TokenKey
from rlt_operator.cache.cache import Cache
from rlt_operator.ray.poller import RayPoller
from rlt_operator.reconcile.events import EventWriter
from rlt_operator.reconcile.failures import Failures
from rlt_operator.reconcile.observe import Sources
from rlt_operator.reconcile.reconcile import reconcile
from rlt_operator.work_queue import Result

KEY = ("demo", "sum")
JOB = {"kind": KIND, **o.manifest(), "status": o.job().status.to_json()}
PATH = api_paths.job(*KEY)
STATUS = f"{PATH}/status"
PODS = api_paths.pods("demo")
RAY_CLUSTERS = api_paths.ray_cluster("demo", "").rstrip("/")
RAY_CLUSTER = api_paths.ray_cluster(*KEY)
TOKENS = TokenKey(b"key")
RAY_TOKEN = api_paths.secret("demo", names.ray_token("sum", attempt=1, suffix=TOKENS.derive_suffix(o.UID, 1)))
PROGRAMS = api_paths.config_map("demo", name_programs())
CONFIG_MAP = api_paths.config_map("demo", "sum-training")
HEAD_SERVICE = api_paths.service("demo", "sum-head-svc")
EVENTS = api_paths.events("demo")


@dataclass
class FakeApi:
    """An API server with some objects, whose requests can fail."""

    objects: dict[str, Manifest] = field(default_factory=lambda: {PATH: copy.deepcopy(JOB)})
    errors: dict[str, ApiError] = field(default_factory=dict)
    """Error by path."""
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    async def get(self, path: str) -> Manifest | None:
        self.reads.append(path)
        return copy.deepcopy(self.objects.get(path))

    async def get_large(self, path: str) -> Manifest | None:
        return None

    async def list_with_version(self, path: str, **query: str) -> tuple[list[Manifest], str]:
        self.reads.append(path)
        return [each for name, each in self.objects.items() if name.startswith(f"{path}/")], "99"

    async def apply(self, path: str, manifest: Manifest) -> Manifest:
        self.fail(path)
        self.writes.append(path)
        known = self.objects.setdefault(path, {"metadata": {"uid": "new", "resourceVersion": "0"}})
        if manifest["metadata"].get("uid") not in (None, known["metadata"]["uid"]):
            raise ApiError(409, "uid mismatch")
        version = str(int(known["metadata"]["resourceVersion"]) + 1)
        self.objects[path] = {
            **known,
            **manifest,
            "metadata": {**known["metadata"], **manifest["metadata"], "resourceVersion": version},
        }
        return self.objects[path]

    async def patch(self, path: str, operations: list[Manifest]) -> Manifest:
        self.fail(path)
        path = path.removesuffix("/status")
        self.writes.append(path)
        known = self.objects[path]
        metadata = known["metadata"]
        if operations[0]["value"] != metadata["resourceVersion"]:
            raise ApiError(409, "the object has been modified")
        version = str(int(metadata["resourceVersion"]) + 1)
        self.objects[path] = apply_patch(known, operations) | {"metadata": {**metadata, "resourceVersion": version}}
        return self.objects[path]

    async def create(self, path: str, manifest: Manifest) -> Manifest:
        self.fail(path)
        path = f"{path}/{manifest['metadata']['name']}"
        if path in self.objects:
            raise ApiError(409, "already exists")
        self.writes.append(path)
        stored = {"uid": "new", "resourceVersion": "1", "creationTimestamp": datetime.now(UTC).isoformat()}
        self.objects[path] = {**manifest, "metadata": {**manifest["metadata"], **stored}}
        return self.objects[path]

    async def merge(self, path: str, patch: Manifest) -> None:
        self.objects[path] = {**self.objects[path], **patch}

    async def delete(self, path: str, *, uid: str) -> None:
        self.objects.pop(path, None)

    def fail(self, path: str) -> None:
        if path in self.errors:
            raise self.errors[path]

    @property
    def status(self) -> RLTrainingJobStatus:
        return RLTrainingJobStatus.model_validate(self.objects[PATH]["status"])

    @property
    def events(self) -> dict[str, int]:
        """Reason -> count."""
        return {each["reason"]: each["count"] for path, each in self.objects.items() if path.startswith(EVENTS)}

    async def list(self, path: str, **query: str) -> list[Manifest]:
        items, _ = await self.list_with_version(path, **query)
        return items


async def send(head: Head, request: Request) -> tuple[int, str]:
    raise AssertionError("no head exists")


async def describe_crds() -> str | None:
    return None


@dataclass
class Loop:
    """The operator's process, whose clock the test moves."""

    api: FakeApi
    seconds: float = 0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        api = cast(KubernetesApi, self.api)
        self.cache = Cache(lambda key: None)
        self.sources = Sources(api, self.cache, RayPoller(send, lambda key: None), tokens=RayTokens(TOKENS))
        self.events = EventWriter(api)
        self.failures = Failures(api, self.cache, self.events, describe_crds)

    def deliver(self) -> None:
        """Bring the cache to the state of the API server, as the watches do."""
        for path, store in ((PATH, self.cache.jobs), (RAY_CLUSTER, self.cache.ray_clusters)):
            found = self.api.objects.get(path)
            if found:
                store.put(found)
            else:
                store.forget(KEY, store.version_of(KEY))

    async def run(self) -> Result:
        self.deliver()
        return await self.reconcile()

    async def reconcile(self) -> Result:
        """Reconcile before the watches deliver anything."""
        result = await reconcile(self.sources, send, self.events, self.failures, KEY)
        await self.events.flush()
        return result

    async def run_after(self, seconds: float) -> Result:
        self.seconds += seconds
        return await self.run()
