"""The API server, a simulation of KubeRay and the kubelets, the operator's process and its webhook."""

from __future__ import annotations

import json
import os
import re
import ssl
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from apiserver.later_version import execute_operator
from apiserver.ray_head import RayHead
from apiserver.waiting import eventually
from cryptography import x509

from rlt_core.names import CANCEL_ANNOTATION, DASHBOARD_PORT
from rlt_e2e.api_objects import (
    build_path,
    create_object,
    delete_object,
    patch_object,
    read_object,
    read_objects,
    request,
)
from rlt_e2e.cluster import Cluster
from rlt_e2e.forked_programs import start_forked
from rlt_e2e.ports import free_port
from rlt_operator.__main__ import main
from rlt_pod.report.driver_report import METRICS_PORT

OF_NO_JOB = (" ", "pods/proxy", "customresourcedefinitions", "rlruntimes", "leases")
"""Ends of keys whose requests do not belong to a job (" ": discovery), or reach Ray through the API server."""

TOKEN_KEY = ("--ray-token-key", "default/ray-token-key")


@dataclass(frozen=True)
class Kubernetes:
    """The API server."""

    cluster: Cluster

    def kubectl(self, *arguments: str | Path, input: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, input=input)

    def get(self, namespace: str, kind: str, name: str) -> dict[str, Any] | None:
        return read_object(self.cluster, namespace, kind, name)

    def create(self, namespace: str, manifest: dict[str, Any], **query: str) -> dict[str, Any]:
        """Create an object. `namespace` is ignored if its kind has none."""
        return create_object(self.cluster, namespace, manifest, **query)

    def dry_run(self, namespace: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Return the object that the API server would store."""
        return self.create(namespace, manifest, dryRun="All")

    def delete(self, namespace: str, kind: str, name: str) -> None:
        """Delete an object and wait until it is gone, also if another one has its name then."""
        found = self.get(namespace, kind, name)
        assert found
        delete_object(self.cluster, namespace, kind, name)

        def is_gone() -> bool:
            now = self.get(namespace, kind, name)
            return now is None or now["metadata"]["uid"] != found["metadata"]["uid"]

        eventually(f"the deletion of {kind} {name}", is_gone)

    def patch(self, namespace: str, kind: str, name: str, patch: dict[str, Any], *, status: bool = False) -> None:
        """Merge a patch into an object, or into its status alone."""
        patch_object(self.cluster, namespace, kind, name, patch, status=status)

    def create_namespace(self, name: str) -> None:
        self.create("", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def label_namespace(self, name: str, labels: dict[str, str | None]) -> None:
        """Set labels of a namespace. None removes one."""
        self.patch("", "namespace", name, {"metadata": {"labels": labels}})

    def create_job(self, namespace: str, spec: dict[str, Any], name: str = "sum") -> None:
        manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": name}, "spec": spec}
        self.create(namespace, manifest)

    def list_objects(self, namespace: str, kind: str, **query: str) -> list[dict[str, Any]]:
        """List objects. An empty namespace stands for all namespaces."""
        return read_objects(self.cluster, namespace, kind, **query)

    def delete_jobs(self) -> None:
        """Delete all jobs and wait until they are gone."""
        for job in self.list_objects("", "rltrainingjob"):
            delete_object(self.cluster, job["metadata"]["namespace"], "rltrainingjob", job["metadata"]["name"])
        eventually("no jobs", lambda: not self.list_objects("", "rltrainingjob"))

    def ray_cluster(self, namespace: str, name: str = "sum") -> dict[str, Any]:
        """Wait for the job's RayCluster."""
        found: dict[str, Any] = eventually("a RayCluster", lambda: self.get(namespace, "raycluster", name))
        return found

    def status(self, namespace: str, name: str = "sum") -> dict[str, Any]:
        job = self.get(namespace, "rltrainingjob", name)
        status: dict[str, Any] = (job or {}).get("status", {})
        return status

    def condition(self, namespace: str, type: str, name: str = "sum") -> tuple[str, str, str]:
        found = [c for c in self.status(namespace, name).get("conditions", []) if c["type"] == type]
        return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")

    def wait(self, namespace: str, type: str, expected: str = "True") -> None:
        """Wait until the condition has this status or reason."""
        eventually(
            f"{type}: {expected}",
            lambda: expected in self.condition(namespace, type)[:2],
            describe=lambda: self.status(namespace).get("message"),
        )

    def events(self, namespace: str) -> list[str]:
        """Reasons of the events on jobs. The controller of PodDisruptionBudgets creates events too."""
        found = self.list_objects(namespace, "event", fieldSelector="involvedObject.kind=RLTrainingJob")
        return [event["reason"] for event in found]

    def play_kuberay(
        self, namespace: str, statuses: dict[str, dict[str, Any]], name: str = "sum", *, node: str | None = None
    ) -> None:
        """Create the pods of the RayCluster with these statuses, as KubeRay, the scheduler and the kubelet do."""
        cluster = self.get(namespace, "raycluster", name)
        assert cluster
        for pod, status in statuses.items():
            kind = "headGroupSpec" if "head" in pod else "workerGroupSpecs"
            group = cluster["spec"][kind] if kind == "headGroupSpec" else cluster["spec"][kind][0]
            template = group["template"]
            owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": name, "uid": cluster["metadata"]["uid"]}
            node_type = "head" if "head" in pod else "worker"
            manifest = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": pod,
                    "labels": {**template["metadata"]["labels"], "ray.io/node-type": node_type},
                    "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
                },
                "spec": {**template["spec"], "nodeName": node},
            }
            self.create(namespace, manifest)
            self.patch(namespace, "pod", pod, {"status": status}, status=True)

    def suspend(self, namespace: str, suspend: bool, name: str = "sum") -> None:
        self.patch(namespace, "rltrainingjob", name, {"spec": {"suspend": suspend}})

    def cancel(self, namespace: str, name: str = "sum") -> None:
        self.patch(namespace, "rltrainingjob", name, {"metadata": {"annotations": {CANCEL_ANNOTATION: "true"}}})

    @contextmanager
    def deny_status_writes(self, namespace: str) -> Iterator[None]:
        """The API server rejects writes to the status of jobs in the namespace."""
        name = f"deny-{namespace}"
        rule = {"apiGroups": ["rlt.dev"], "apiVersions": ["*"], "resources": ["rltrainingjobs/status"]}
        constraints = {"resourceRules": [{**rule, "operations": ["UPDATE"]}]}
        kind = "ValidatingAdmissionPolicy"
        policy = {"matchConstraints": constraints, "validations": [{"expression": "false"}]}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector}}
        for each, spec in ((kind, policy), (f"{kind}Binding", binding)):
            manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": each, "metadata": {"name": name}}
            self.create(namespace, {**manifest, "spec": spec})
        try:
            eventually("status writes are denied", lambda: not self._may_write_status(namespace))
            yield
        finally:
            for each in (f"{kind}Binding", kind):
                delete_object(self.cluster, "", each, name)
        eventually("status writes are allowed", lambda: self._may_write_status(namespace))

    def _may_write_status(self, namespace: str) -> bool:
        patch = {"status": {"message": "dry run"}}
        try:
            patch_object(self.cluster, namespace, "rltrainingjob", "sum", patch, status=True, dryRun="All")
        except ValueError:
            return False
        return True

    def end_pods(self, namespace: str) -> None:
        """Delete the pods at once. There is no kubelet that would terminate them."""
        request(self.cluster, "DELETE", build_path(namespace, "pod"), {"gracePeriodSeconds": 0})

    def make_service(self, namespace: str, ray: RayHead, name: str = "sum") -> None:
        """Create the head's service, as KubeRay does, with a Ray head on this machine as its endpoint."""
        service = f"{name}-head-svc"
        port = {"name": "dashboard", "port": DASHBOARD_PORT}
        progress = {"name": "rlt-metrics", "port": METRICS_PORT}
        pod = {"kind": "Pod", "namespace": namespace, "name": PODS[0]}  # the API server's proxy reads its address
        ports = [{**port, "port": ray.port}, progress]
        uid = self.ray_cluster(namespace, name)["metadata"]["uid"]
        owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": name, "uid": uid, "controller": True}
        metadata = {"name": service, "ownerReferences": [owner]}
        endpoint = {"addresses": [{"ip": ray.address, "targetRef": pod}], "ports": ports}
        for item in (
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [port, progress]}},
            {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": service}, "subsets": [endpoint]},
        ):
            self.create(namespace, item)


@dataclass
class Operator:
    """The process `rlt-operator run`, or `rlt-operator webhook`, with KUBECONFIG."""

    kubeconfig: Path
    log: Path
    options: tuple[str, ...] = ()
    """More command-line options."""
    port: int = field(default_factory=free_port)
    process: BaseProcess | None = None
    command: str = "run"
    packages: Path | None = None
    """A folder with the packages of another version."""

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self.launch()
        eventually("the operator is ready", lambda: self.alive() and self.fetch("/readyz") == "ok\n")

    def launch(self) -> None:
        """Start the process."""
        key = TOKEN_KEY if self.command == "run" else ()
        command = ["rlt-operator", self.command, "--metrics-port", str(self.port), *key, *self.options]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        if self.packages:
            environment["PYTHONPATH"] = str(self.packages)
        program = execute_operator if self.packages else main
        self.process = start_forked(program, command, environment, self.log, self.log, self.log.parent)

    def alive(self) -> bool:
        assert self.process
        assert self.process.exitcode is None, self.log.read_text()
        return True

    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def kill(self) -> None:
        """Send SIGKILL, as in a crash."""
        assert self.process
        self.process.kill()
        self.process.join()

    def send_signal(self, number: int) -> None:
        assert self.process
        assert self.process.pid
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        assert self.process
        self.process.terminate()
        self.process.join(30)
        assert self.process.exitcode is not None, f"still running 30 s after SIGTERM: {self.log.read_text()}"
        return self.process.exitcode

    def reconciliations(self) -> float:
        """Number of reconciliations since the start."""
        return self.metric("rlt_operator_reconcile_duration_seconds_count")

    def unreported_failures(self) -> float:
        """Number of failures since the start that could not be written to the status of a job."""
        return self.metric("rlt_operator_unreported_failures_total")

    def leads(self) -> bool:
        """Whether this replica reconciles jobs."""
        return self.metric("rlt_operator_leader") == 1

    def metric(self, name: str) -> float:
        """Sum of a metric's values over its labels."""
        text = self.fetch("/metrics")
        assert f"# TYPE {name.removesuffix('_count')} " in text
        samples = (line.rpartition(" ") for line in text.splitlines())
        return sum(float(value) for sample, _, value in samples if sample.partition("{")[0] == name)

    def requests(self) -> Counter[str]:
        """Requests about jobs to the API server since the start, by method and resource."""
        found: Counter[str] = Counter()
        for line in self.fetch("/metrics").splitlines():
            if line.startswith("rlt_operator_api_requests_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                found[f"{labels['method']} {labels['resource']}"] += int(float(line.rpartition(" ")[2]))
        return Counter({key: count for key, count in found.items() if not key.endswith(OF_NO_JOB)})

    def polls(self) -> float:
        """Number of polls of Ray heads since the start."""
        name = "rlt_operator_ray_poll_duration_seconds_count "
        lines = self.fetch("/metrics").splitlines()
        return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    def fetch(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                text: str = response.read().decode()
                return text
        except urllib.error.URLError:
            return ""


@dataclass(frozen=True)
class Webhook:
    """The process of the admission webhook."""

    kubernetes: Kubernetes
    server: Operator
    port: int

    def wait(self) -> None:
        """Wait until the API server calls and trusts the webhook, which rejects an object that the CRD accepts."""
        message = [""]

        def is_rejected() -> bool:
            message[0] = self.rejection({"nodePool": []}, "--validate=false", kind="RLRuntime")
            return "is not a field" in message[0]

        eventually("the API server calls the webhook", is_rejected, describe=lambda: message[0] or "no rejection")

    def serial(self) -> int:
        """Serial number of the certificate that the server presents."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.port))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    def rejection(
        self, spec: dict[str, Any], *options: str, kind: str = "RLTrainingJob", name: str = "reviewed"
    ) -> str:
        """The error of a dry run of `kubectl apply`. Empty if the API server accepts the object."""
        manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        try:
            self.kubernetes.kubectl("apply", "--dry-run=server", *options, "-f", "-", input=json.dumps(manifest))
        except ValueError as error:
            return str(error)
        return ""


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
PODS = ("sum-head-a", "sum-workers-worker-b", "sum-workers-worker-c")
