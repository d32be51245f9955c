"""The world of one job: API server, KubeRay, pods, Ray heads, the user, and the operator's process.

A world is forked before each transition. Two worlds with the same `describe` differ only in names of uids, in
resourceVersions of the same order, and in the time of day.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from exploration.api_server import START, WATCHED, ApiServer, Change
from exploration.process import Crash, Fault, Process, Transport
from exploration.simulation import CLOCK, run_at, run_now
from exploration.symmetry import canonicalize
from exploration.versions import VERSION

from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core import names
from rlt_core.children.programs import name_programs
from rlt_core.job import Manifest, parse_status
from rlt_core.kubernetes import api_paths
from rlt_core.ray_http import Head, Request, UnreachableError
from rlt_pod.clear import NOT_CLEAR
from rlt_pod.command.run_record import RECORD_SUFFIX

NAMESPACE = "demo"
NAME = "sum"
KEY = (NAMESPACE, NAME)
JOB = api_paths.job(*KEY)
RAY_CLUSTER = api_paths.ray_cluster(*KEY)
CONFIG_MAP = api_paths.config_map(NAMESPACE, names.config_map(NAME))
RECORD_MAP = api_paths.config_map(NAMESPACE, names.run_record(NAME))
RECORD = b64encode(zlib.compress(b'{"version": 1, "steps": [1], "metrics": {"reward": [0.5]}}')).decode()
"""What the head has of the run when its program has ended."""
PODS = api_paths.pods(NAMESPACE)
NODE = f"{api_paths.NODES}/node"
"""The node that every pod gets until it is cordoned."""
DEADLINE_S = 1000
SPEC: dict[str, Any] = {
    "model": {"fromSeed": {}},
    "data": {"preset": "arithmetic"},
    "training": {"totalSteps": 1, "trainBatchSize": 8},
    "cluster": {"image": "trainer", "workers": [{"replicas": 1, "resources": {"cpu": "1", "memory": "4Gi"}}]},
    "failurePolicy": {"maxRestarts": 1},
    "pendingDeadlineSeconds": DEADLINE_S,
    "activeDeadlineSeconds": DEADLINE_S,
}

RIVAL = (NAMESPACE, "rival")
"""The RayCluster of another job."""
GPU = "nvidia.com/gpu"
RUNTIME = "tenants"
WORKER = {**SPEC["cluster"]["workers"][0], "accelerator": {"resourceName": GPU, "count": 1}}
LIMITED_SPEC = {
    **SPEC,
    "cluster": {**SPEC["cluster"], "workers": [WORKER]},
    "runtimeRef": {"name": RUNTIME},
}
"""The spec with an accelerator, and a runtime that limits a namespace to one."""
IN_PLACE_SPEC = {
    **SPEC,
    "failurePolicy": {"maxRestarts": 3, "restartPolicy": "InPlace"},
    "storage": {"claimName": "runs"},
}
"""The spec of a job whose program runs again on the same RayCluster."""
ROLLOUT = "rollout"
SEPARATE_SPEC = {
    **SPEC,
    "rollout": {"mode": "separate", "workerGroup": ROLLOUT},
    "cluster": {
        **SPEC["cluster"],
        "workers": [{**SPEC["cluster"]["workers"][0], "name": name} for name in ("train", ROLLOUT)],
    },
}
"""The spec with a pod that only generates, without which the program continues."""
TRAIN_GROUP, ROLLOUT_GROUP = SEPARATE_SPEC["cluster"]["workers"]
MINIMUM_SPEC = {
    **SEPARATE_SPEC,
    "cluster": {**SEPARATE_SPEC["cluster"], "workers": [TRAIN_GROUP, {**ROLLOUT_GROUP, "minReplicas": 1}]},
}
"""The same with minReplicas: a loss of this pod ends the attempt."""
ELASTIC_GROUP = {**ROLLOUT_GROUP, "replicas": 2, "minReplicas": 1, "maxReplicas": 2}
ELASTIC_SPEC = {**SEPARATE_SPEC, "cluster": {**SEPARATE_SPEC["cluster"], "workers": [TRAIN_GROUP, ELASTIC_GROUP]}}
"""The same with two pods that only generate, or one."""
REPORTED = {"STOPPING": "RUNNING", "CHECKING": "RUNNING", "NOT_CLEAR": "FAILED"}
"""State of a Ray job -> what Ray reports of it, if that has another name."""


@dataclass
class World:
    """Everything that a transition may change."""

    server: ApiServer = field(default_factory=ApiServer)
    process: Process = field(default_factory=lambda: Process(KEY))
    ray: dict[str, dict[str, str]] = field(default_factory=dict)
    """Uid of a head pod -> id -> state of its Ray jobs: RUNNING, STOPPING, STOPPED, SUCCEEDED or FAILED.

    A program that first looks for processes of an earlier one is CHECKING, and NOT_CLEAR if it has ended because of
    them.
    """
    silent: bool = False
    """Whether Ray's job API does not answer."""
    disturbances: int = 0
    """How many more disturbances the explorer may cause on this path."""
    disturbed: bool = False
    """Whether a disturbance has happened."""
    faults: int = 0
    """How many more requests may fail or crash the process on this path."""

    rivals: int = 0
    """How many more times another job may take the accelerators of the namespace."""
    breakages: int = 0
    """How many more times a user may change the job so that the operator fails on it."""
    upgrades: int = 0
    """How many more times a replica of another version may lead on this path."""
    losses: int = 0
    """How many more times the job may lose its rollout pod on this path."""
    has_minimum: bool = False
    """Whether the group of the rollout pod has minReplicas."""
    scalings: int = 0
    """How many more times the user may change the number of rollout pods on this path."""
    is_elastic: bool = False
    """Whether the number of rollout pods can change."""
    failures: int = 0
    """How many more times a program of a job with restartPolicy InPlace may fail on this path."""
    deletions: int = 0
    """How many more times a worker of such a job may be deleted on this path."""
    in_place: bool = False
    """Whether the job has restartPolicy InPlace."""

    def fork(self) -> World:
        ray = {uid: dict(jobs) for uid, jobs in self.ray.items()}
        return replace(self, server=self.server.fork(), process=self.process.fork(), ray=ray)

    def describe(self) -> int:
        """The same for worlds that behave in the same way."""
        server = self.server
        process = self.process
        seconds = self.server.seconds
        CLOCK.seconds = seconds
        failures = (*process.failures.values(), *process.quarantine.values())
        waits = [(each.delay, max(0, round(each.retry_at - seconds))) for each in failures]
        rest = (
            self.silent,
            self.disturbed,
            self.disturbances,
            self.faults,
            self.rivals,
            self.breakages,
            self.upgrades,
            self.losses,
            self.scalings,
            self.failures,
            self.deletions,
            process.newer,
            process.woken,
            process.timer is None,
            len(process.quarantine),
            waits,
            self.ray,
        )
        texts: list[str | int] = []
        for path, text in sorted(server.objects.items()):
            texts += [path, text]
        for resource in WATCHED:
            texts += [resource, *(part for change in self.list_pending(resource) for part in change)]
        texts += [int(each.resource_version or 0) for each in failures]
        return canonicalize([*texts, *process.describe(), repr(rest)], server.now)

    # What exists

    @property
    def job(self) -> Manifest | None:
        return self.server.get(JOB)

    @property
    def status(self) -> RLTrainingJobStatus:
        return parse_status(self.job or {})

    @property
    def pods(self) -> list[Manifest]:
        return [pod for _, pod in self.server.select("pods")]

    @property
    def programs(self) -> str | None:
        """The path of the programs that the pods of the RayCluster mount. None without a RayCluster of the job."""
        cluster = self.server.get(RAY_CLUSTER)
        name = cluster and cluster["metadata"].get("labels", {}).get(names.PROGRAMS_LABEL)
        return api_paths.config_map(NAMESPACE, name) if name else None

    @property
    def has_lost_programs(self) -> bool:
        """Whether the pods need deleted programs that another version than the leader's has written."""
        VERSION.use(self.process.newer)
        return bool(self.programs and self.programs not in self.server.objects and name_programs() not in self.programs)

    def is_true(self, type: str) -> bool:
        """Whether the stored status has the condition with the value True."""
        conditions = ((self.job or {}).get("status") or {}).get("conditions", [])
        return any(each["type"] == type and each["status"] == "True" for each in conditions)

    def ask_ray(self, head: Head, request: Request) -> tuple[int, str]:
        """The HTTP server of a head. Stopping is not immediate: the program saves its state."""
        pod = next((each for each in self.pods if each["status"].get("podIP") == head.ip), None)
        if pod is None or self.silent:
            raise UnreachableError("no answer")
        jobs = self.ray.setdefault(pod["metadata"]["uid"], {})
        if request.path == "/api/jobs/" and request.body:
            job_id = request.body["submission_id"]
            if job_id in jobs:
                return 500, f"Job {job_id} already exists"
            jobs[job_id] = "CHECKING" if " --clear " in request.body["entrypoint"] else "RUNNING"
            return 200, "{}"
        job_id = request.path.removeprefix("/api/jobs/").removesuffix("/stop")
        if request.method == "POST":
            if jobs.get(job_id) in ("RUNNING", "CHECKING"):
                jobs[job_id] = "STOPPING"
            return 200, "{}"
        if request.path.startswith("/api/jobs/"):
            if job_id not in jobs:
                return 404, f"Job {job_id} does not exist"
            state = REPORTED.get(jobs[job_id], jobs[job_id])
            job: dict[str, Any] = {"status": state, "driver_node_id": "head"}
            if jobs[job_id] == "NOT_CLEAR":
                job["message"] = f"Job entrypoint command failed with exit code {NOT_CLEAR}, last available logs"
            if self.in_place:
                job["start_time"] = round(START.timestamp() * 1000)
            return 200, json.dumps(job)
        if request.path.startswith("/api/v0/logs/file") and f"{RECORD_SUFFIX}&" in request.path:
            return 200, RECORD
        return 404, "no such page"

    # What the operator does

    def reconcile(self, fault: Fault | None = None) -> Transport:
        """One reconciliation, or its part until a crash. Then a new process starts."""
        transport = Transport(self, fault)
        try:
            run_at(self.server.seconds, self.process.reconcile(transport))
        except Crash:
            self.restart()
        return transport

    def restart(self) -> Transport:
        """The process ends, and a new one lists all objects."""
        self.process = Process(KEY, newer=self.process.newer)
        self._list_all()
        return self._lead()

    def upgrade(self, behind: Sequence[str]) -> Transport:
        """A replica of the other version becomes the leader. Its watches `behind` have not delivered new objects."""
        before = self.process
        self.process = Process(KEY, newer=not before.newer)
        self.process.copy_watches(before)
        for resource in behind:
            self.process.forget(resource, self.server.list_new(resource))
        return self._lead()

    def _lead(self) -> Transport:
        transport = Transport(self)
        run_at(self.server.seconds, self.process.lead(transport))
        return transport

    def leave_namespace(self) -> Transport:
        """The namespace is not selected during one reconciliation. Then the watches list all objects again."""
        watches = self.process.cache.watches
        selected = watches.of_namespaces
        watches.of_namespaces = {}
        self.process.cache._forget_namespace(NAMESPACE)
        transport = self.reconcile()
        watches.of_namespaces = selected
        self._list_all()
        return transport

    def _list_all(self) -> None:
        for resource in WATCHED:
            self.server.interrupt_watch(resource)
            while self.server.streams[resource]:
                self.deliver(resource)

    def list_pending(self, resource: str) -> list[Change]:
        """The changes that the watch has not delivered and that the operator has not read otherwise."""
        return [each for each in self.server.streams[resource] if not self.process.knows(resource, each)]

    def deliver(self, resource: str) -> None:
        """The watch delivers what it has. The list that repairs a watch of kopf comes after what kopf reports."""
        CLOCK.seconds = self.server.seconds
        changes = self.server.take(resource)
        if all(self.process.knows(resource, each) for each in changes):
            changes = (*changes, *self.server.take(resource))
        run_now(self.process.deliver(resource, changes))

    def poll(self) -> bool:
        """Ask the head. Returns whether the answer has changed."""
        return run_at(self.server.seconds, self.process.ask_head(self))
