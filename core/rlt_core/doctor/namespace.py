"""What the namespace of the jobs has: runtimes, queues, quota, image pulls, and who reaches the pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.model import quantity_value
from rlt_core.doctor.facts import ClusterFacts
from rlt_core.doctor.installation import has_argument
from rlt_core.doctor.line import Line, error, explain_unread, join_names, ok, unknown, warning
from rlt_core.fabric import aliases

ENFORCING = re.compile(r"^(?:cilium|calico-node|canal|antrea-agent|kube-router|ovnkube-node|weave-net|anetd|azure-npm)")
"""DaemonSets of network plugins that enforce NetworkPolicies. Whether AWS's plugin does is not readable."""
PULL_FAILURE = re.compile(r"ErrImagePull|ImagePullBackOff|Failed to pull image|Back-off pulling image")


def inspect_runtimes(facts: ClusterFacts) -> Iterator[Line]:
    """RLRuntimes, which have images, node pools, volumes and limits for jobs."""
    if not facts.runtimes.known:
        yield explain_unread("runtimes", facts.runtimes)
    elif facts.runtimes.items:
        yield ok("runtimes", join_names([each["metadata"]["name"] for each in facts.runtimes.items]))
    elif facts.runtimes.installed:
        message = "The cluster has no RLRuntime: each job sets its images, pods and volumes."
        yield warning("runtimes", message, "rlt init --model NAME --gpu KIND, or rlt init --kind runtime")


def inspect_queues(facts: ClusterFacts) -> Iterator[Line]:
    """Kueue's queues of the namespace."""
    if not facts.local_queues.known:
        yield explain_unread("queues", facts.local_queues)
        return
    if not facts.local_queues.installed:
        yield ok("queues", "Kueue is not installed: jobs start without a queue.")
        return
    for queue in facts.local_queues.items:
        name = queue["metadata"]["name"]
        conditions = (queue.get("status") or {}).get("conditions") or []
        active = next((each for each in conditions if each["type"] == "Active"), None)
        if active and active["status"] != "True":
            message = f"LocalQueue {name} is not active: {active.get('message') or active.get('reason')}."
            yield error("queues", message, f"kubectl describe localqueue {name} -n {facts.namespace}")
        else:
            yield ok("queues", f"LocalQueue {name} of ClusterQueue {queue['spec'].get('clusterQueue')}")
    if not facts.local_queues.items:
        message = f"Kueue is installed, and namespace {facts.namespace} has no LocalQueue."
        yield warning("queues", message, "docs/scheduling.md#kueue")


def inspect_quota(facts: ClusterFacts) -> Iterator[Line]:
    """ResourceQuotas of the namespace: what is left of each resource that pods of jobs request."""
    if not facts.quotas.known:
        yield explain_unread("quota", facts.quotas)
        return
    if not facts.quotas.items:
        yield ok("quota", f"Namespace {facts.namespace} has no ResourceQuota.")
    for quota in facts.quotas.items:
        name = quota["metadata"]["name"]
        used_up = sorted(_find_used_up(quota.get("status") or {}))
        if used_up:
            message = f"ResourceQuota {name} has nothing left of {join_names(used_up)}."
            yield warning("quota", message, f"kubectl describe quota {name} -n {facts.namespace}")
        else:
            yield ok("quota", f"ResourceQuota {name}: {_describe_accelerators(quota) or 'no limit of accelerators'}")


def inspect_images(facts: ClusterFacts) -> Iterator[Line]:
    """Whether pods pulled their images, and with which Secrets. Only nodes can test a pull."""
    topic = "image pull"
    if not facts.events.known:
        yield explain_unread(topic, facts.events)
    failures = [each for each in facts.events.items if PULL_FAILURE.search(_text(each))]
    if failures:
        latest = max(failures, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))
        pod = (latest.get("involvedObject") or {}).get("name")
        message = f"Pods of the namespace failed to pull images; the latest is {pod}: {_text(latest)}"
        yield warning(topic, message, "docs/published-images.md#what-to-check")
    if not facts.service_account.known:
        yield explain_unread(topic, facts.service_account)
        return
    secrets = [
        str(secret.get("name")) for each in facts.service_account.items for secret in each.get("imagePullSecrets") or []
    ]
    if not failures:
        text = (
            f"ServiceAccount default pulls with {join_names(secrets)}"
            if secrets
            else "no Secret: public images, or credentials of the nodes"
        )
        yield ok(topic, text)


def inspect_network_policies(facts: ClusterFacts) -> Iterator[Line]:
    """Whether NetworkPolicies are enforced. `rlt logs`, `metrics` and `ui` then need clientCidrs."""
    topic = "network policy"
    if not facts.daemon_sets.known:
        yield explain_unread(topic, facts.daemon_sets)
        return
    names = sorted({each["metadata"]["name"] for each in facts.daemon_sets.items})
    plugins = [name for name in names if ENFORCING.match(name)]
    page = "docs/networking.md#who-reaches-the-pods"
    if not plugins:
        message = "No known network plugin that enforces NetworkPolicies was found: any pod can reach Ray's ports."
        yield unknown(topic, message, page)
    elif has_argument(facts.deployments, "--network-policy=") and not has_argument(facts.deployments, "--client-cidr="):
        message = f"{join_names(plugins)} enforces NetworkPolicies, which do not admit `rlt logs` and `rlt metrics`."
        yield warning(
            topic, message, "helm upgrade --set networkPolicy.clientCidrs={ADDRESS/32}: charts/rlt-operator/README.md"
        )
    else:
        yield ok(topic, f"{join_names(plugins)} enforces NetworkPolicies")


def _find_used_up(status: Mapping[str, Any]) -> Iterator[str]:
    used = status.get("used") or {}
    for name, hard in (status.get("hard") or {}).items():
        if quantity_value(str(used.get(name, "0"))) >= quantity_value(str(hard)):
            yield f"{name} ({used.get(name, '0')} of {hard})"


def _describe_accelerators(quota: Mapping[str, Any]) -> str:
    status = quota.get("status") or {}
    used = status.get("used") or {}
    limits = {
        name: hard
        for name, hard in (status.get("hard") or {}).items()
        if name.removeprefix("requests.").removeprefix("limits.") in aliases.GPU_RESOURCES
    }
    return ", ".join(f"{used.get(name, '0')} of {hard} {name}" for name, hard in sorted(limits.items()))


def _text(event: Mapping[str, Any]) -> str:
    return " ".join(str(event.get("message") or "").split())[:300]
