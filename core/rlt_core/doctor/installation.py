"""Kubernetes, KubeRay and rlt itself: versions, CRDs, operator and webhook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from rlt_api.schema.crd import GROUP, VERSION, build_job_crd, build_runtime_crd
from rlt_core.crd_fields import list_fields, list_missing_fields
from rlt_core.doctor.facts import ClusterFacts, Reading
from rlt_core.doctor.line import Line, error, explain_unread, join_names, ok, unknown, warning
from rlt_core.job import Manifest
from rlt_core.kuberay import KUBERAY_MINIMUM, OLDEST, parse_kuberay
from rlt_core.shards import choose_shard, name_lease, parse_group

KUBERNETES_MINIMUM = (1, 30)
"""As kubeVersion in charts/rlt-operator/Chart.yaml."""
NAME_LABEL = "app.kubernetes.io/name"
OPERATOR_NAME = "rlt-operator"
WEBHOOK_NAME = "rlt-webhook"
KUBERAY_NAMES = ("kuberay-operator", "kuberay")
"""Of KubeRay's chart, and of its kustomization."""
STALE_LEASE = timedelta(minutes=5)
"""The operator renews its Lease every few seconds; the rest is for clocks that differ."""
INSTALL = "helm install rlt-operator charts/rlt-operator --namespace rlt-system --create-namespace"
INSTALL_KUBERAY = "helm install kuberay-operator kuberay/kuberay-operator"
UPGRADE_CRDS = "kubectl apply --server-side --force-conflicts -f charts/rlt-operator/crds/"


def inspect_kubernetes(facts: ClusterFacts) -> Iterator[Line]:
    """The version of the API server."""
    version = re.match(r"v?(\d+)\.(\d+)", facts.server_version)
    minimum = ".".join(map(str, KUBERNETES_MINIMUM))
    if version is None:
        yield unknown("kubernetes", f"The version {facts.server_version!r} is unreadable.", "kubectl version")
    elif (int(version[1]), int(version[2])) < KUBERNETES_MINIMUM:
        message = f"{facts.server_version} is older than {minimum}, the oldest version that rlt supports."
        yield error("kubernetes", message, "docs/getting-started.md#requirements")
    else:
        yield ok("kubernetes", facts.server_version)


def inspect_kuberay(facts: ClusterFacts) -> Iterator[Line]:
    """KubeRay's CRD, which decides what a RayCluster can have, and its operator."""
    topic = "kuberay"
    if not facts.kuberay_crd.known:
        yield explain_unread(topic, facts.kuberay_crd)
    elif not facts.kuberay_crd.items:
        yield error(topic, "KubeRay is not installed: the CRD rayclusters.ray.io is missing.", INSTALL_KUBERAY)
        return
    else:
        kuberay = parse_kuberay(facts.kuberay_crd.items[0])
        if "spec" not in kuberay.fields:
            message = f"The CRD rayclusters.ray.io does not serve v1; rlt needs KubeRay {KUBERAY_MINIMUM} or newer."
            yield error(topic, message, "docs/kuberay.md#required-version")
        elif kuberay.version == OLDEST:
            message = f"The CRD is of KubeRay {OLDEST}, by its fields; rlt needs {KUBERAY_MINIMUM} or newer."
            yield warning(topic, message, "docs/kuberay.md#required-version")
        else:
            yield ok(topic, f"CRD of KubeRay {kuberay.version}, by its fields")
    yield from _inspect_deployment(topic, facts.deployments, KUBERAY_NAMES, "KubeRay's operator")


def inspect_crds(facts: ClusterFacts) -> Iterator[Line]:
    """The CRDs of rlt, compared with the fields of this command line."""
    for topic, reading, expected in (
        ("rltrainingjobs", facts.job_crd, build_job_crd),
        ("rlruntimes", facts.runtime_crd, build_runtime_crd),
    ):
        if not reading.known:
            yield explain_unread(topic, reading)
        elif not reading.items:
            yield error(topic, f"The CRD {topic}.{GROUP} is not installed.", INSTALL)
        elif missing := list_missing_fields(list_fields(reading.items[0], VERSION), _list_expected(expected)):
            message = f"The CRD lacks fields of rlt {facts.client_version}: {join_names(missing)}."
            yield warning(topic, message, UPGRADE_CRDS)
        else:
            yield ok(topic, f"CRD {GROUP}/{VERSION} with all fields of rlt {facts.client_version}")


def inspect_operator(facts: ClusterFacts) -> Iterator[Line]:
    """The operator's Deployment, Lease, version and namespaces."""
    topic = "operator"
    yield from _inspect_deployment(topic, facts.deployments, (OPERATOR_NAME,), "The operator of rlt", INSTALL)
    for deployment in _select(facts.deployments, (OPERATOR_NAME,)):
        version = (deployment["metadata"].get("labels") or {}).get("app.kubernetes.io/version")
        if version and version != facts.client_version:
            message = f"The operator is rlt {version}, this command line is rlt {facts.client_version}."
            yield warning(topic, message, "helm upgrade rlt-operator charts/rlt-operator")
        watched = [each.removeprefix("--namespace=") for each in _arguments(deployment) if _is_namespace(each)]
        if watched and facts.namespace not in watched:
            message = f"The operator does not watch namespace {facts.namespace}, only {join_names(watched)}."
            yield error(topic, message, "helm upgrade --set watchNamespaces={…}: charts/rlt-operator/README.md")
    for lease in facts.leases.items:
        yield from _inspect_lease(topic, facts, lease)


def _inspect_lease(topic: str, facts: ClusterFacts, lease: Manifest) -> Iterator[Line]:
    """The operator's Lease, and with shards the Lease of the shard to which the namespace belongs."""
    namespace = lease["metadata"]["namespace"]
    logs = f"kubectl -n {namespace} logs -l {NAME_LABEL}={OPERATOR_NAME}"
    spec = lease.get("spec") or {}
    if stale := _find_stale(spec, facts.now):
        yield error(topic, f"No operator has renewed its Lease since {stale}: no job is reconciled.", logs)
        return
    total = parse_group(spec.get("holderIdentity"))
    if total is None:
        return
    if not facts.shard_leases.known:
        yield explain_unread(topic, facts.shard_leases)
        return
    name = name_lease(lease["metadata"]["name"], choose_shard(facts.namespace, total))
    found = next((each for each in facts.shard_leases.items if _is_named(each, namespace, name)), None)
    spec = (found or {}).get("spec") or {}
    stale = _find_stale(spec, facts.now)
    if found and not stale:
        return
    state = f"has not been renewed since {stale}" if stale else "does not exist"
    message = f"Lease {name} of the shard {state}: no job in namespace {facts.namespace} is reconciled."
    yield error(topic, message, f"{logs} --all-containers")


def _find_stale(spec: Mapping[str, Any], now: datetime) -> str | None:
    """When a Lease was renewed last if that is too long ago."""
    renewed: str | None = spec.get("renewTime")
    return renewed if renewed and now - datetime.fromisoformat(renewed) > STALE_LEASE else None


def _is_named(manifest: Manifest, namespace: str, name: str) -> bool:
    return (manifest["metadata"]["namespace"], manifest["metadata"]["name"]) == (namespace, name)


def inspect_webhook(facts: ClusterFacts) -> Iterator[Line]:
    """The admission webhook. Without it, the operator applies the same rules after a job is stored."""
    topic = "webhook"
    if not facts.webhooks.known:
        yield explain_unread(topic, facts.webhooks)
        return
    found = [
        (config, hook) for config in facts.webhooks.items for hook in config.get("webhooks") or [] if _is_rlt(hook)
    ]
    if not found:
        message = "No webhook validates jobs: an invalid job is stored, and the operator rejects it."
        yield warning(topic, message, "helm upgrade --set webhook.enabled=true")
    for config, hook in found:
        yield _inspect_hook(topic, config, hook, facts.endpoint_slices)


def _inspect_hook(topic: str, config: Manifest, hook: Mapping[str, Any], slices: Reading) -> Line:
    name = config["metadata"]["name"]
    client = hook.get("clientConfig") or {}
    policy = hook.get("failurePolicy", "Fail")
    report = error if policy == "Fail" else warning
    effect = "no job can be submitted" if policy == "Fail" else "jobs are stored without validation"
    if not client.get("caBundle"):
        message = f"{name} has no caBundle, so the API server does not trust the webhook: {effect}."
        return report(topic, message, f"kubectl logs -A -l {NAME_LABEL}={OPERATOR_NAME}")
    service = client.get("service")
    if service is None:
        return ok(topic, f"{name} at {client.get('url')}, failurePolicy {policy}")
    if not slices.known:
        return explain_unread(topic, slices)
    ready = [
        endpoint
        for each in slices.items
        if (each["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == service["name"]
        for endpoint in each.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ]
    if not ready:
        message = f"Service {service['name']} of {name} has no ready endpoint: {effect}."
        return report(topic, message, f"kubectl -n {service['namespace']} get pods -l {NAME_LABEL}={WEBHOOK_NAME}")
    return ok(topic, f"{name} with {len(ready)} ready endpoints, failurePolicy {policy}")


def _inspect_deployment(
    topic: str, reading: Reading, names: tuple[str, ...], what: str, install: str | None = None
) -> Iterator[Line]:
    """Its image and whether it is available. `install`: the command if it is missing; None: it may be hidden."""
    if not reading.known:
        yield explain_unread(topic, reading)
        return
    found = _select(reading, names)
    labels = " or ".join(f"{NAME_LABEL}={name}" for name in names)
    if not found and install:
        yield error(topic, f"{what} is not installed: no Deployment has the label {labels}.", install)
    elif not found:
        message = f"No Deployment has the label {labels}: {what} is missing, or the provider hides it."
        yield unknown(topic, message, "docs/kuberay.md")
    for each in found:
        metadata = each["metadata"]
        images = [container.get("image") for container in _containers(each)]
        ready = (each.get("status") or {}).get("availableReplicas") or 0
        if ready:
            yield ok(topic, f"{what} runs in {metadata['namespace']}: {', '.join(map(str, images))}")
        else:
            message = f"{what} in {metadata['namespace']} has no available pod."
            yield error(topic, message, f"kubectl -n {metadata['namespace']} describe deployment {metadata['name']}")


def _select(reading: Reading, names: tuple[str, ...]) -> list[Manifest]:
    return [each for each in reading.items if (each["metadata"].get("labels") or {}).get(NAME_LABEL) in names]


def _containers(deployment: Manifest) -> list[Manifest]:
    containers: list[Manifest] = deployment["spec"]["template"]["spec"]["containers"]
    return containers


def _arguments(deployment: Manifest) -> list[str]:
    return [argument for container in _containers(deployment) for argument in container.get("args") or []]


def has_argument(reading: Reading, prefix: str) -> bool:
    """Whether an operator runs with an argument that begins with `prefix`."""
    found = [
        each
        for each in _select(reading, (OPERATOR_NAME,))
        for argument in _arguments(each)
        if argument.startswith(prefix)
    ]
    return bool(found)


@cache
def _list_expected(build: Callable[[], Manifest]) -> frozenset[str]:
    return list_fields(build(), VERSION)


def _is_namespace(argument: str) -> bool:
    return argument.startswith("--namespace=")


def _is_rlt(hook: Mapping[str, Any]) -> bool:
    return any(GROUP in (rule.get("apiGroups") or ()) for rule in hook.get("rules") or [])
