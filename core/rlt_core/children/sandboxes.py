"""The pods of rollout.multiTurn.sandbox: a Job (batch/v1) or Sandboxes as a pool, their Service and NetworkPolicy.

The driver finds the ready pods by the DNS name of the Service, claims one by a connection, and ends it by closing the
connection. The Job controller replaces each pod that ends, and agent-sandbox each one that the operator has deleted
then. The driver needs no rights in Kubernetes.
"""

from __future__ import annotations

from typing import Any

from rlt_api.blocks.sandbox import Sandbox
from rlt_api.model import quantity_value
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY, PROGRAMS_PATH
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.children.placement import build_scheduling_labels, build_tolerations
from rlt_core.children.programs import build_programs_source
from rlt_core.children.ray_token import SANDBOX_KEY, get_secret_name
from rlt_core.job import Job, Manifest
from rlt_pod.sandbox.protocol import HOST_VARIABLE, KEY_VARIABLE, PORT

USER = 65532
"""User and group of the pods: another than the job's pods have by default."""
WORK = "/work"
AGENT_SANDBOX = "AgentSandbox"
"""The provider whose pods belong to Sandboxes of agent-sandbox."""
MAX_INT32 = 2**31 - 1
"""The Job ends with the head pod, not by the number of its pods."""
MEMORY_SHARE = 0.75
"""Share of the memory for a process of a program (RLIMIT_DATA), so that it fails instead of the pod."""
HEAD_LABELS = {"ray.io/node-type": "head"}
"""Label of the head pod, from KubeRay."""


def get_sandbox(spec: RLTrainingJobSpec) -> Sandbox | None:
    """Return the sandbox of the job's conversations, if it has one."""
    return spec.rollout.multi_turn.sandbox if spec.rollout.multi_turn else None


def build_sandbox_env(job: Job, spec: RLTrainingJobSpec) -> dict[str, str]:
    """Build the variable by which the driver finds the pods."""
    return {HOST_VARIABLE: f"{names.sandboxes(job.name)}.{job.namespace}.svc"} if get_sandbox(spec) else {}


def build_sandbox_service(job: Job) -> Manifest:
    """Build the headless Service: its DNS name has the addresses of the ready pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(job, names.sandboxes(job.name)),
        "spec": {"clusterIP": "None", "selector": _labels(job), "ports": [{"name": "sandbox", "port": PORT}]},
    }


def build_sandbox_policy(job: Job, *, head_on_host_network: bool) -> Manifest:
    """Build the NetworkPolicy of the pods: no connection from them, and to them from the head pod alone.

    No NetworkPolicy selects a head on the network of its node by labels. Then incoming connections are not limited.
    """
    head = {"podSelector": {"matchLabels": names.labels(job.name) | HEAD_LABELS}}
    ingress: Manifest = {"ingress": [{"from": [head], "ports": [{"protocol": "TCP", "port": PORT}]}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(job, names.sandboxes(job.name)),
        "spec": {
            "podSelector": {"matchLabels": _labels(job)},
            "policyTypes": ["Egress"] if head_on_host_network else ["Ingress", "Egress"],
            "egress": [],
            **({} if head_on_host_network else ingress),
        },
    }


def build_sandbox_pool(
    job: Job, spec: RLTrainingJobSpec, sandbox: Sandbox, *, head: str, head_uid: str
) -> tuple[Manifest, ...]:
    """Build the Job, or the Sandboxes. The head pod owns them: Kubernetes deletes them with the head."""
    name = names.sandbox_pool(job.name, head_uid=head_uid)
    metadata = build_metadata(job, name)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": head, "uid": head_uid, "controller": True}
    metadata |= {"labels": metadata["labels"] | build_scheduling_labels(job, spec), "ownerReferences": [owner]}
    template = {"metadata": {"labels": _labels(job)}, "spec": _build_pod(job, spec, sandbox)}
    if sandbox.provider == AGENT_SANDBOX:
        return tuple(
            {
                "apiVersion": "agents.x-k8s.io/v1beta1",
                "kind": "Sandbox",
                "metadata": {**metadata, "name": each},
                "spec": {"podTemplate": template},
            }
            for each in names.list_sandboxes(name, sandbox.pool_size)
        )
    pool = {"parallelism": sandbox.pool_size, "completions": MAX_INT32, "backoffLimit": MAX_INT32, "template": template}
    return ({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": pool},)


def _labels(job: Job) -> dict[str, str]:
    return {names.SANDBOX_LABEL: job.name}


def _build_pod(job: Job, spec: RLTrainingJobSpec, sandbox: Sandbox) -> Manifest:
    optional: dict[str, Any] = {
        "imagePullSecrets": [{"name": name} for name in spec.cluster.image_pull_secrets],
        "nodeSelector": dict(sandbox.node_selector),
        "tolerations": build_tolerations(sandbox.tolerations),
        "runtimeClassName": sandbox.runtime_class_name,
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,  # process 1 ignores SIGTERM
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_build_container(job, spec, sandbox)],
        "volumes": [
            {"name": "work", "emptyDir": {"sizeLimit": sandbox.disk}},
            {"name": "programs", "projected": {"sources": [build_programs_source()]}},
        ],
        **{name: value for name, value in optional.items() if value},
    }


def _build_container(job: Job, spec: RLTrainingJobSpec, sandbox: Sandbox) -> Manifest:
    amounts = {"cpu": sandbox.cpu, "memory": sandbox.memory, "ephemeral-storage": sandbox.disk}
    process_memory = int(quantity_value(sandbox.memory) * MEMORY_SHARE)
    key = {"name": get_secret_name(job), "key": SANDBOX_KEY}
    return {
        "name": "sandbox",
        "image": sandbox.image or spec.cluster.image,
        "imagePullPolicy": spec.cluster.image_pull_policy,
        "command": ["python3", PROGRAMS_PATH, "sandbox", str(process_memory)],
        "env": [
            {"name": KEY_VARIABLE, "valueFrom": {"secretKeyRef": key}},
            {"name": "TMPDIR", "value": WORK},
        ],
        "ports": [{"name": "sandbox", "containerPort": PORT, "protocol": "TCP"}],
        # A claimed pod listens no more, and leaves the addresses of the Service.
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1, "failureThreshold": 1},
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "work", "mountPath": WORK},
            {"name": "work", "mountPath": "/tmp"},
            {"name": "programs", "mountPath": CONFIG_DIRECTORY, "readOnly": True},
        ],
    }
