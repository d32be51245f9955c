"""Read and write objects of the API server in this process: each start of kubectl takes a tenth of a CPU second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config
from urllib3.exceptions import HTTPError

from rlt_e2e.cluster import Cluster

TIMEOUT_S = 30.0
ADMISSION = "apis/admissionregistration.k8s.io/v1"
NAMESPACED = {
    "configmap": ("api/v1", "configmaps"),
    "endpoints": ("api/v1", "endpoints"),
    "event": ("api/v1", "events"),
    "job": ("apis/batch/v1", "jobs"),
    "lease": ("apis/coordination.k8s.io/v1", "leases"),
    "networkpolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "persistentvolumeclaim": ("api/v1", "persistentvolumeclaims"),
    "pod": ("api/v1", "pods"),
    "poddisruptionbudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "raycluster": ("apis/ray.io/v1", "rayclusters"),
    "resourcequota": ("api/v1", "resourcequotas"),
    "rltrainingjob": ("apis/rlt.dev/v1alpha1", "rltrainingjobs"),
    "sandbox": ("apis/agents.x-k8s.io/v1beta1", "sandboxes"),
    "secret": ("api/v1", "secrets"),
    "service": ("api/v1", "services"),
    "workload": ("apis/scheduling.k8s.io/v1alpha1", "workloads"),
}
"""Kind in lower case -> path of the API, and plural."""
CLUSTER_SCOPED = {
    "customresourcedefinition": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "namespace": ("api/v1", "namespaces"),
    "node": ("api/v1", "nodes"),
    "validatingadmissionpolicy": (ADMISSION, "validatingadmissionpolicies"),
    "validatingadmissionpolicybinding": (ADMISSION, "validatingadmissionpolicybindings"),
    "validatingwebhookconfiguration": (ADMISSION, "validatingwebhookconfigurations"),
}


def read_object(cluster: Cluster, namespace: str, kind: str, name: str) -> dict[str, Any] | None:
    """Read an object. Returns None if it does not exist. Raises ValueError as `request` does."""
    return request(cluster, "GET", build_path(namespace, kind, name), may_be_missing=True)


def read_objects(cluster: Cluster, namespace: str, kind: str, **query: str) -> list[dict[str, Any]]:
    """Read the objects of a kind, with selectors as in the API. An empty namespace stands for all namespaces."""
    found = request(cluster, "GET", build_path(namespace, kind), query=query)
    assert found is not None
    return list(found["items"])


def create_object(cluster: Cluster, namespace: str, manifest: dict[str, Any], **query: str) -> dict[str, Any]:
    """Create an object. As for kubectl, an unknown field is an error. Raises ValueError as `request` does."""
    path = build_path(namespace, manifest["kind"])
    created = request(cluster, "POST", path, manifest, query={"fieldValidation": "Strict", **query})
    assert created is not None
    return created


def patch_object(
    cluster: Cluster, namespace: str, kind: str, name: str, patch: dict[str, Any], *, status: bool = False, **query: str
) -> None:
    """Merge a patch into an object, or into its status alone. Raises ValueError as `request` does."""
    path = build_path(namespace, kind, name) + ("/status" if status else "")
    request(cluster, "PATCH", path, patch, query=query)


def delete_object(cluster: Cluster, namespace: str, kind: str, name: str, **options: Any) -> None:
    """Request the deletion of an object, with DeleteOptions. It does not wait, and accepts that there is no object."""
    request(cluster, "DELETE", build_path(namespace, kind, name), options, may_be_missing=True)


def build_path(namespace: str, kind: str, name: str = "") -> str:
    """Build the path of an object, or of all objects with its kind. An empty namespace stands for all namespaces."""
    key = kind.lower()
    api, plural = CLUSTER_SCOPED.get(key) or NAMESPACED[key]
    place = f"namespaces/{namespace}" if namespace and key in NAMESPACED else ""
    return "/" + "/".join(part for part in (api, place, plural, name) if part)


def request(
    cluster: Cluster,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    query: Mapping[str, str] | None = None,
    may_be_missing: bool = False,
) -> dict[str, Any] | None:
    """Send a request to the API server. Returns None if the object may be missing and is.

    Raises ValueError with the path and the server's message, or the reason why there is no response.
    """
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    client = _connect(cluster.kubeconfig, cluster.kubeconfig.stat().st_mtime_ns)
    try:
        method, url, headers, content, _ = client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = client.call_api(method, url, headers, content, _request_timeout=TIMEOUT_S)
        text = response.read().decode()  # type: ignore[no-untyped-call]
    except HTTPError as error:
        raise ValueError(f"{path}: {error}") from error
    if response.status == 404 and may_be_missing:
        return None
    if response.status >= 300:
        raise ValueError(f"{path}: {_read_message(text)}")
    answer: dict[str, Any] = json.loads(text)
    return answer


def _read_message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except ValueError:  # such as "404 page not found" of an API that is not served yet
        return text.strip()


@cache
def _connect(kubeconfig: Path, modified: int) -> ApiClient:
    """One connection for each kubeconfig. A cluster that is created again writes another one at the same path."""
    client: ApiClient = new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
    return client
