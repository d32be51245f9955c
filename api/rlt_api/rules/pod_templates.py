"""What the podTemplate of a job may set: RLRuntime's spec.podTemplate.

The rules read the podTemplate as the job gives it, before it is merged with the runtime's: the platform team can
set any field in the defaults of the runtime.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from rlt_api.findings.finding import Finding, child_path, printable
from rlt_api.rules.queues import KUEUE_LABEL, QUEUE_LABELS
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY, FUNCTIONS_DIRECTORY

Json = Mapping[str, Any]
Check = Callable[[Any], bool]
Allowed = Check | dict[str, "Allowed"] | list["Allowed"]
"""What a value may be: what a function accepts, an object with these fields, or a list of such items."""

MAX_FINDINGS = 20
"""Maximum number of findings for one podTemplate."""

RESERVED_VOLUMES = re.compile(
    "shared-memory|storage|training-config|ray-token|model-cache|(functions|host|model)-[0-9]+"
)
"""Names of the operator's volumes. Another volume of that name would replace the operator's."""
RESERVED_DOMAINS = {
    *("rlt.dev", "ray.io"),
    *(label.partition("/")[0] for label in (KUEUE_LABEL, *QUEUE_LABELS.values())),
}
"""Domains of labels by which the operator, KubeRay and schedulers select pods."""
RESERVED_LABELS = {"queue", "applicationId"}
"""YuniKorn's labels without a domain: https://yunikorn.apache.org/docs/user_guide/labels_and_annotations_in_yunikorn"""

CONTAINERS = ("ray-head", "ray-worker")
"""Names of the operator's containers: in the head pod, and in worker pods."""


def validate_pod_templates(spec: Json, runtime: RLRuntimeSpec) -> Iterator[Finding]:
    """Validate the podTemplates in a job's own spec, as JSON, against the level of the runtime."""
    if runtime.pod_template == "any":
        return
    for path, container, template in list_pod_templates(spec):
        if not template:
            continue
        if runtime.pod_template == "forbidden":
            message = "is not allowed by the runtime (podTemplate: forbidden)"
            fix = "remove it and use the fields of spec.cluster, spec.storage and spec.scheduling"
            yield Finding(path, _show(template), message, fix, rule="runtime-pod-template")
        else:
            yield from islice(_find_forbidden(template, _restricted(container), path), MAX_FINDINGS)


def list_pod_templates(spec: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield path, name of the operator's container and podTemplate for the head and each worker group."""
    cluster = spec.get("cluster", {})
    yield "spec.cluster.head.podTemplate", CONTAINERS[0], cluster.get("head", {}).get("podTemplate", {})
    for index, group in enumerate(cluster.get("workers", [])):
        yield f"spec.cluster.workers[{index}].podTemplate", CONTAINERS[1], group.get("podTemplate", {})


def _restricted(container: str) -> Allowed:
    """The fields that level restricted allows.

    They grant no privilege, and no other field of a job sets them, so that a limit on a field of a job holds for the
    pods. The volume types are from the restricted Pod Security Standard without csi and ephemeral. Projected
    volumes have no serviceAccountToken, because the pods have no API credentials. An affinity to pods of other
    namespaces could keep these from nodes.
    https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    """
    source: dict[str, Allowed] = {"configMap": _is_set, "secret": _is_set, "downwardAPI": _is_set}
    mount_options = ("subPath", "subPathExpr", "readOnly", "recursiveReadOnly")
    mount: dict[str, Allowed] = dict.fromkeys(mount_options, _is_set)
    term: dict[str, Allowed] = dict.fromkeys(
        ("labelSelector", "topologyKey", "matchLabelKeys", "mismatchLabelKeys"), _is_set
    )
    affinity: Allowed = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": _is_set, "podAffinityTerm": term}],
    }
    return {
        "metadata": {"labels": _is_labels},
        "spec": {
            "affinity": {"podAffinity": affinity, "podAntiAffinity": affinity},
            "topologySpreadConstraints": _is_set,
            "hostAliases": _is_set,
            "dnsConfig": _is_set,
            "enableServiceLinks": _is_set,
            "volumes": [
                {
                    "name": _is_free_volume_name,
                    "persistentVolumeClaim": _is_set,
                    "emptyDir": _is_set,
                    **source,
                    "projected": {"defaultMode": _is_set, "sources": [source]},
                }
            ],
            "containers": [
                {
                    "name": lambda name: name == container,
                    "workingDir": _is_set,
                    "volumeMounts": [{"name": _is_set, "mountPath": _is_free_path, **mount}],
                    "ports": [{"name": _is_set, "containerPort": _is_set, "protocol": _is_set}],
                }
            ],
        },
    }


FIXES = {
    "image": "use spec.cluster.image",
    "imagePullPolicy": "use spec.cluster.imagePullPolicy",
    "imagePullSecrets": "use spec.cluster.imagePullSecrets",
    "env": "use spec.cluster.env",
    "envFrom": "use spec.cluster.env",
    "resources": "use resources and accelerator of spec.cluster",
    "nodeSelector": "use nodeSelector of spec.cluster",
    "nodeAffinity": "use nodeSelector of spec.cluster",
    "tolerations": "use tolerations of spec.cluster",
    "terminationGracePeriodSeconds": "use spec.cluster.terminationGracePeriodSeconds",
    "schedulerName": "use spec.scheduling.schedulerName",
    "priorityClassName": "use spec.scheduling.priorityClassName",
    "securityContext": "use spec.security",
    "hostNetwork": "use spec.network.attach",
}
"""Field of a pod template -> the field of a job that replaces it."""


def _find_forbidden(value: Any, allowed: Allowed, path: str) -> Iterator[Finding]:
    """Yield a finding for each value that is not allowed. An unknown field, a null and another type are not."""
    if isinstance(allowed, dict) and isinstance(value, Mapping):
        for key, child in value.items():
            yield from _find_forbidden(child, allowed.get(key, _is_nothing), child_path(path, str(key)))
    elif isinstance(allowed, list) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_forbidden(item, allowed[0], child_path(path, index))
    elif not callable(allowed) or not allowed(value):
        message = "is not allowed by the runtime (podTemplate: restricted)"
        fix = FIXES.get(path.rpartition(".")[2], "remove it, or ask the platform team to allow it in the RLRuntime")
        yield Finding(path, _show(value), message, fix, rule="runtime-pod-template")


def _is_nothing(value: Any) -> bool:
    return False


def _is_set(value: Any) -> bool:
    return value is not None  # a null removes the operator's value


def _is_labels(value: Any) -> bool:
    """Whether they are labels without a reserved domain."""
    if not isinstance(value, Mapping) or None in value.values():
        return False
    return not any(key in RESERVED_LABELS or key.partition("/")[0] in RESERVED_DOMAINS for key in value)


def _is_free_volume_name(value: Any) -> bool:
    return isinstance(value, str) and not RESERVED_VOLUMES.fullmatch(value)


def _is_free_path(value: Any) -> bool:
    """Whether the path is outside of the folders with the training config and the user-defined functions."""
    if not isinstance(value, str):
        return False
    path = "/" + posixpath.normpath(f"/{value}").lstrip("/") + "/"
    return not path.startswith((f"{CONFIG_DIRECTORY}/", f"{FUNCTIONS_DIRECTORY}/"))


def _show(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))
