"""The rendered manifests of the chart.

- the real API server admits the pods at the pod security level `restricted`;
- the roles contain exactly the verbs that the operator uses, cluster-wide or per namespace;
- unknown values are rejected, and optional manifests are rendered only if enabled.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlt_e2e.cluster import Cluster
from rlt_operator.__main__ import build_parser

pytestmark = pytest.mark.apiserver

CHART = Path(__file__).parents[1] / "rlt-operator"

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]

USED = {
    "rlt.dev/rltrainingjobs": {"get", "list", "watch", "delete"},
    "rlt.dev/rltrainingjobs/status": {"patch"},
    "rlt.dev/rltrainingjobs/finalizers": {"update"},
    "ray.io/rayclusters": {"get", "list", "watch", "create", "patch", "delete"},
    "kueue.x-k8s.io/workloads": {"list", "watch"},
    "/configmaps": {"get", "list", "watch", "create", "patch", "delete"},
    "/secrets": {"create"},
    "networking.k8s.io/networkpolicies": {"get", "create", "patch"},
    "/persistentvolumeclaims": {"get", "create", "patch"},
    "policy/poddisruptionbudgets": {"get", "create", "patch"},
    "resource.nvidia.com/computedomains": {"get", "create", "patch"},
    "scheduling.k8s.io/workloads": {"get", "create", "patch"},
    "/services": {"get", "create"},
    "batch/jobs": {"get", "create"},
    "agents.x-k8s.io/sandboxes": {"get", "create"},
    "/pods": {"list", "watch", "deletecollection"},
    "/podtemplates": {"create"},
    "/events": {"get", "list", "watch", "create", "patch"},
    "/namespaces": {"get"},
}
"""Group/resource -> verbs that the operator uses in the watched namespaces."""
USED_CLUSTER_WIDE = {
    "rlt.dev/rlruntimes": {"get", "list", "watch"},
    "/nodes": {"list", "watch"},
    "apiextensions.k8s.io/customresourcedefinitions": {"get"},
    "admissionregistration.k8s.io/validatingwebhookconfigurations": {"get", "patch"},
    "authentication.k8s.io/tokenreviews": {"create"},
    "authorization.k8s.io/subjectaccessreviews": {"create"},
}
"""The same for cluster-scoped resources."""
USED_WITH_LABELS = {"/namespaces": {"get", "list", "watch"}}
"""The same, with namespaces that are selected by labels."""
USED_IN_RELEASE_NAMESPACE = {
    "/secrets": {"get", "patch", "create"},
    "/configmaps": {"get", "create", "patch"},
    "coordination.k8s.io/leases": {"get", "update", "create"},
}
"""The same for the namespace of the release."""
EVERYTHING = (
    "metrics.serviceMonitor.enabled=true",
    "metrics.podMonitor.enabled=true",
    "dashboard.enabled=true",
    "alerts.enabled=true",
    "watchNamespaces={team-a,team-b}",
    "networkPolicy.clientCidrs={10.0.0.1/32}",
    "priorityClassName=high",
    "imagePullSecrets={registry}",
    "podAnnotations.example\\.com/note=yes",
    "nodeSelector.pool=system",
    "tolerations[0].operator=Exists",
    "webhook.certificates=cert-manager",
    "webhook.failurePolicy=Fail",
    "webhook.clientCertificate.configMap=clients",
    "webhook.clientCertificate.name=kube-apiserver",
    "runtimes.default=small",
    "runtimes.required=true",
    "runtimes.checkUse=true",
    "flowControl.enabled=true",
    "extraEnv[0].name=TZ",
    "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution=null",
)


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The only manifest of a kind that belongs neither to the webhook nor to Prometheus."""
    others = ("-webhook", "-metrics-reader")
    (found,) = (each for each in of_kind(manifests, kind) if not each["metadata"]["name"].endswith(others))
    return found


def of_webhook(manifests: list[Manifest], kind: str) -> Manifest:
    """The webhook's only manifest of a kind."""
    (found,) = (each for each in of_kind(manifests, kind) if each["metadata"]["name"].endswith("-webhook"))
    return found


def operator_of(manifests: list[Manifest]) -> Manifest:
    """The container of the operator."""
    (container,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(container)


def all_rules(roles: list[Manifest]) -> list[Manifest]:
    return [rule for role in roles for rule in role["rules"]]


def verbs(rules: list[Manifest]) -> dict[str, set[str]]:
    table: dict[str, set[str]] = {}
    for rule in rules:
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                table.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return table


def test_helm_lint_strict_passes(helm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", [(), EVERYTHING], ids=["defaults", "everything"])
def test_the_api_server_accepts_all_manifests_with_restricted_pods(
    installed: Cluster, render: Render, values: tuple[str, ...]
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in ("rlt-system", "team-a", "team-b"):
        installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    manifests = render(*values)
    templates = [each["spec"]["template"] for each in of_kind(manifests, "Deployment")]
    pods = []
    for number, template in enumerate(templates):
        template["spec"].pop("priorityClassName", None)  # no such class on this API server
        metadata = {"name": f"as-a-pod-{number}", "namespace": "rlt-system"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"] | metadata, "spec": template["spec"]}
        pods.append(pod)
    foreign = ("monitoring.coreos.com/", "cert-manager.io/")  # the API server has no CRDs of other operators
    served = [manifest for manifest in manifests if not manifest["apiVersion"].startswith(foreign)]
    accounts = of_kind(served, "ServiceAccount")
    default = {"name": "default", "namespace": "rlt-system"}
    accounts.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": default})
    installed.apply(*accounts)  # the API server rejects a pod without its account
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*served, *pods]})
    dry_run = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    assert len(installed.kubectl(*dry_run, "-o", "name", "-f", "-", input=items).split()) == len(served) + len(pods)


def test_the_api_server_rejects_a_privileged_pod(installed: Cluster) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}})
    spec = {"containers": [{"name": "root", "image": "example.com/root"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root", "namespace": "strict"}, "spec": spec}
    account = {"name": "default", "namespace": "strict"}
    installed.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    with pytest.raises(ValueError, match='violates PodSecurity "restricted'):
        installed.apply(pod)


def test_containers_have_a_read_only_root_and_limits(render: Render) -> None:
    manifests = render()
    pods = [each["spec"]["template"]["spec"] for each in of_kind(manifests, "Deployment")]
    pods.append(only(manifests, "Pod")["spec"])
    for container in [container for pod in pods for container in pod["containers"]]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


def test_the_cluster_role_contains_exactly_the_used_verbs(render: Render) -> None:
    manifests = render("userRoles.create=false")
    assert verbs(only(manifests, "ClusterRole")["rules"]) == USED | USED_CLUSTER_WIDE
    role = only(manifests, "ClusterRoleBinding")["roleRef"]
    assert (role["kind"], role["name"]) == ("ClusterRole", only(manifests, "ClusterRole")["metadata"]["name"])
    roles = [role for role in of_kind(manifests, "Role") if not role["metadata"]["name"].endswith("-webhook")]
    assert verbs(all_rules(roles)) == USED_IN_RELEASE_NAMESPACE


@pytest.mark.parametrize("watched", ["null", "{team-a,team-b}"])
def test_the_webhook_can_only_read_what_it_validates_with(render: Render, watched: str) -> None:
    manifests = render(f"watchNamespaces={watched}", "userRoles.create=false")
    rules = of_webhook(manifests, "ClusterRole")["rules"]
    assert verbs(rules) == {
        "rlt.dev/rlruntimes": {"get"},
        "/namespaces": {"get"},
        "admissionregistration.k8s.io/validatingwebhookconfigurations": {"get"},
        "authentication.k8s.io/tokenreviews": {"create"},
        "authorization.k8s.io/subjectaccessreviews": {"create"},
    }
    named = {rule["resources"][0]: rule.get("resourceNames") for rule in rules}
    assert named["namespaces"] == (None if watched == "null" else ["team-a", "team-b"])
    assert named["validatingwebhookconfigurations"] == ["rlt-operator"]
    (rule,) = of_webhook(manifests, "Role")["rules"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (["secrets"], ["rlt-operator-webhook"], ["get"])
    account = of_webhook(manifests, "ServiceAccount")["metadata"]["name"]
    assert of_webhook(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == account
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        (subject,) = of_webhook(manifests, kind)["subjects"]
        assert subject["name"] == account


def test_the_policies_admit_only_prometheus_the_release_and_the_callers(render: Render) -> None:
    values = ("ui.enabled=true", "networkPolicy.metricsNamespaces={a}", "podNetworkPolicy.apiServerCidrs={10.0.0.1/32}")
    manifests = render(*values, "podNetworkPolicy.uiNamespaces={ingress}")
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "NetworkPolicy")}
    pods = {each["metadata"]["name"]: each["spec"]["template"] for each in of_kind(manifests, "Deployment")}
    assert policies.keys() == pods.keys() == {"rlt-operator", "rlt-operator-webhook", "rlt-operator-ui"}
    admitted = {}
    for name, spec in policies.items():
        selected = spec["podSelector"]["matchLabels"].items()
        assert [pod for pod, template in pods.items() if selected <= template["metadata"]["labels"].items()] == [name]
        (container,) = pods[name]["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]}
        admitted[name] = {port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]}
        assert admitted[name].keys() == ports
    label = "kubernetes.io/metadata.name"
    scrapers = [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {label: "a"}}}]
    assert admitted["rlt-operator"] == {"metrics": scrapers, "https-metrics": scrapers}
    callers = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    assert admitted["rlt-operator-webhook"] == {**admitted["rlt-operator"], "webhook": callers}
    assert admitted["rlt-operator-ui"] == {"http": [{"namespaceSelector": {"matchLabels": {label: "ingress"}}}]}
    assert not of_kind(render("podNetworkPolicy.enabled=false"), "NetworkPolicy")
    (webhook,) = (each for each in of_webhook(render(), "NetworkPolicy")["spec"]["ingress"] if "from" not in each)
    assert webhook["ports"] == [{"port": "webhook"}]


def test_each_watched_namespace_has_a_role(render: Render) -> None:
    manifests = render("watchNamespaces={team-a,team-b}", "userRoles.create=false")
    roles = [role for role in of_kind(manifests, "Role") if not role["metadata"]["name"].endswith("-webhook")]
    namespaces = {role["metadata"]["namespace"] for role in roles}
    granted = {
        name: verbs(all_rules([role for role in roles if role["metadata"]["namespace"] == name])) for name in namespaces
    }
    assert granted == {"team-a": USED, "team-b": USED, "rlt-system": USED_IN_RELEASE_NAMESPACE}
    bound = {(each["metadata"]["namespace"], each["roleRef"]["name"]) for each in of_kind(manifests, "RoleBinding")}
    bound.discard(("rlt-system", "rlt-operator-webhook"))
    assert bound == {(role["metadata"]["namespace"], role["metadata"]["name"]) for role in roles}
    assert verbs(only(manifests, "ClusterRole")["rules"]) == USED_CLUSTER_WIDE
    assert {"--namespace=team-a", "--namespace=team-b"} <= set(operator_of(manifests)["args"])
    (webhook,) = only(manifests, "ValidatingWebhookConfiguration")["webhooks"]
    (selected,) = webhook["namespaceSelector"]["matchExpressions"]
    assert selected["values"] == ["team-a", "team-b"]


def test_namespaces_with_labels_need_a_binding_each(render: Render) -> None:
    labels = r"watchNamespaceLabels.rlt\.dev/jobs=yes"
    manifests = render(labels, "userRoles.create=false", "runtimes.checkUse=true")
    roles = {role["metadata"]["name"]: verbs(role["rules"]) for role in of_kind(manifests, "ClusterRole")}
    bound = {binding["roleRef"]["name"] for binding in of_kind(manifests, "ClusterRoleBinding")}
    del roles["rlt-operator-webhook"]
    (unbound,) = roles.keys() - bound - {"rlt-operator-metrics-reader"}
    del roles["rlt-operator-metrics-reader"]
    assert unbound.endswith("-namespace")
    assert roles.pop(unbound) == USED
    assert list(roles.values()) == [USED_CLUSTER_WIDE | USED_WITH_LABELS]
    assert {role["metadata"]["namespace"] for role in of_kind(manifests, "Role")} == {"rlt-system"}
    assert "--namespace-selector=rlt.dev/jobs=yes" in operator_of(manifests)["args"]
    selector = {"matchLabels": {"rlt.dev/jobs": "yes"}}
    (webhook,) = only(manifests, "ValidatingWebhookConfiguration")["webhooks"]
    assert webhook["namespaceSelector"] == selector
    bindings = of_kind(manifests, "ValidatingAdmissionPolicyBinding")
    assert bindings
    assert all(each["spec"]["matchResources"]["namespaceSelector"] == selector for each in bindings)


def test_the_policy_of_the_cluster_for_runtimes(render: Render) -> None:
    default, strict = (operator_of(render(*values))["args"] for values in ((), EVERYTHING))
    assert not {each.partition("=")[0] for each in default} & {"--default-runtime", "--require-runtime"}
    assert {"--default-runtime=small", "--require-runtime"} <= set(strict)


def test_the_verb_use_is_checked_only_if_enabled(render: Render) -> None:
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    default, strict = (
        [each for each in of_kind(render(*values), *kinds) if each["metadata"]["name"].endswith("-runtimes-use")]
        for values in ((), EVERYTHING)
    )
    assert default == []
    policy, binding = strict
    assert policy["spec"]["failurePolicy"] == "Fail"
    (selected,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert selected["values"] == ["team-a", "team-b"]


def test_the_operator_can_read_only_its_own_and_kuberays_crds(render: Render) -> None:
    rules = only(render("userRoles.create=false"), "ClusterRole")["rules"]
    (rule,) = (rule for rule in rules if "customresourcedefinitions" in rule["resources"])
    assert rule["resourceNames"] == ["rayclusters.ray.io", "rltrainingjobs.rlt.dev", "rlruntimes.rlt.dev"]


def test_bindings_and_pod_use_one_account_and_only_the_pod_mounts_its_token(render: Render) -> None:
    manifests = render()
    account = only(manifests, "ServiceAccount")
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    (subject,) = only(manifests, "ClusterRoleBinding")["subjects"]
    assert subject["name"] == pod["serviceAccountName"] == account["metadata"]["name"]
    assert (account["automountServiceAccountToken"], pod["automountServiceAccountToken"]) == (False, True)


def test_the_network_policies_admit_the_pod_of_the_operator(render: Render) -> None:
    from rlt_core.children.network_policy import OPERATOR_LABELS

    manifests = render("networkPolicy.metricsNamespaces={a,b}", "networkPolicy.clientCidrs={10.0.0.1/32}")
    options = {"--network-policy=rlt-system", "--metrics-namespace=a", "--metrics-namespace=b"}
    assert options | {"--client-cidr=10.0.0.1/32"} <= set(operator_of(manifests)["args"])
    pod = only(manifests, "Deployment")["spec"]["template"]
    assert OPERATOR_LABELS.items() <= pod["metadata"]["labels"].items()


def test_without_network_policies_the_operator_cannot_create_them(render: Render) -> None:
    manifests = render("networkPolicy.enabled=false", "userRoles.create=false")
    assert "networking.k8s.io/networkpolicies" not in verbs(only(manifests, "ClusterRole")["rules"])
    assert not [option for option in operator_of(manifests)["args"] if "network-policy" in option]


def test_replicas_share_one_lease_and_are_kept_apart(render: Render) -> None:
    manifests = render()
    spec = only(manifests, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxUnavailable"]) == (2, 0)
    labels = spec["template"]["metadata"]["labels"].items()
    budget = only(manifests, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels
    spread = spec["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for each in spread:
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
        assert each["labelSelector"]["matchLabels"].items() <= labels
    options = build_parser().parse_args(operator_of(manifests)["args"])
    leases = [rule for rule in all_rules(of_kind(manifests, "Role")) if rule["resources"] == ["leases"]]
    named = {verb: rule.get("resourceNames") for rule in leases for verb in rule["verbs"]}
    name = options.leader_election_lease[1]
    assert options.leader_election_lease == ("rlt-system", name)
    assert named == {"get": [name], "update": [name], "create": None}


def test_a_single_replica_elects_too_and_has_no_disruption_budget(render: Render) -> None:
    """The update of its Deployment runs two pods for a moment. A budget would block the drain of its node."""
    manifests = render("replicas=1")
    assert [each["metadata"]["name"] for each in of_kind(manifests, "PodDisruptionBudget")] == ["rlt-operator-webhook"]
    assert "topologySpreadConstraints" not in only(manifests, "Deployment")["spec"]["template"]["spec"]
    assert any(argument.startswith("--leader-election-lease=") for argument in operator_of(manifests)["args"])


def test_liveness_starts_when_the_port_is_open(render: Render) -> None:
    container = operator_of(render())
    (webhook,) = of_webhook(render(), "Deployment")["spec"]["template"]["spec"]["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert all(container[f"{name}Probe"] == webhook[f"{name}Probe"] for name in paths)
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


def test_the_full_name_names_every_object_and_reference(render: Render) -> None:
    manifests = render("fullnameOverride=trainer", *EVERYTHING)
    assert all(each["metadata"]["name"].startswith("trainer") for each in manifests)
    text = json.dumps(only(manifests, "Deployment"))
    assert "rlt-system/trainer" in text
    assert only(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "trainer"


def test_the_container_gets_additional_variables(render: Render) -> None:
    variables = operator_of(render("extraEnv[0].name=TZ", "extraEnv[0].value=UTC"))["env"]
    assert variables == [{"name": "TZ", "value": "UTC"}]
    assert "env" not in operator_of(render())


def test_pods_on_the_network_of_their_nodes_are_replaced_before_their_ports_are_used_again(render: Render) -> None:
    manifests = render("webhook.hostNetwork=true")
    assert "hostNetwork" not in only(manifests, "Deployment")["spec"]["template"]["spec"]
    spec = of_webhook(manifests, "Deployment")["spec"]
    pod = spec["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 1
    spec = of_webhook(render(), "Deployment")["spec"]
    assert "hostNetwork" not in spec["template"]["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("replicas=0", "replicas"),
        ("replicaCount=2", "replicaCount"),
        ("fullnameOverride=Trainer", "fullnameOverride"),
        ("extraEnv[0].value=x", "extraEnv"),
        ("webhook.hostNetwork=maybe", "hostNetwork"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.registry=example.com", "registry"),
        ("watchNamespaces={Team_A}", "watchNamespaces"),
        ("metrics.serviceMonitor.interval=often", "interval"),
        ("shards=11", "shards"),
        ("metrics.port=80", "port"),
        ("resources.limits.gpus=1", "gpus"),
        ("dashboard.enabled=maybe", "dashboard"),
        ("runtimes.default=Small", "default"),
        ("webhook.failurePolicy=Open", "failurePolicy"),
        ("webhook.certificates=none", "certificates"),
        ("webhook.timeoutSeconds=60", "timeoutSeconds"),
        ("webhook.replicas=0", "replicas"),
        ("webhook.clientCertificate.secret=a", "secret"),
        ("podNetworkPolicy.apiServerCidrs={10.0.0.1}", "apiServerCidrs"),
        ("userRoles.admin=true", "admin"),
        ("networkPolicy.clientCidrs={10.0.0.1}", "clientCidrs"),
    ],
)
def test_an_unknown_or_invalid_value_is_rejected_by_name(render: Render, value: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        render(value)


@pytest.mark.parametrize(
    ("value", "kind", "name"),
    [
        ("metrics.serviceMonitor.enabled=true", "ServiceMonitor", "rlt-operator"),
        ("alerts.enabled=true", "PrometheusRule", "rlt-operator"),
        ("flowControl.enabled=true", "FlowSchema", "rlt-operator"),
        ("flowControl.enabled=true", "PriorityLevelConfiguration", "rlt-operator"),
    ],
)
def test_an_optional_manifest_is_disabled_by_default(render: Render, value: str, kind: str, name: str) -> None:
    assert not of_kind(render(), kind)
    assert only(render(value), kind)["metadata"]["name"] == name


@pytest.mark.parametrize("account", ["rlt-operator", "rlt-operator-webhook"])
def test_the_api_server_counts_requests_of_the_accounts_in_their_own_level(
    installed: Cluster, render: Render, account: str
) -> None:
    kinds = ("FlowSchema", "PriorityLevelConfiguration")
    installed.apply(*of_kind(render("flowControl.enabled=true"), *kinds))
    accounts = [each["metadata"]["name"] for each in of_kind(render(), "ServiceAccount")]
    assert account in accounts
    end = time.monotonic() + 60
    before = count_dispatched(installed)
    while count_dispatched(installed) == before:
        assert time.monotonic() < end, "no request at the level within 60 s"
        user = f"--as=system:serviceaccount:rlt-system:{account}"
        installed.kubectl("get", "rlruntime", "absent", "--ignore-not-found", user)


def count_dispatched(cluster: Cluster) -> float:
    """Number of requests that the API server has dispatched at the release's priority level."""
    labels = 'flow_schema="rlt-operator",priority_level="rlt-operator"'
    lines = cluster.kubectl("get", "--raw", "/metrics").splitlines()
    name = "apiserver_flowcontrol_dispatched_requests_total"
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and labels in line)


def test_helm_does_not_change_the_dashboards(render: Render) -> None:
    data = [config_map["data"] for config_map in of_kind(render("dashboard.enabled=true"), "ConfigMap")]
    rendered = {name: json.loads(text) for each in data for name, text in each.items()}
    assert rendered == {file.name: json.loads(file.read_text()) for file in (CHART / "dashboards").iterdir()}


def test_the_rule_has_the_alerts_with_links_to_the_page_of_runbooks(render: Render) -> None:
    spec = only(render("alerts.enabled=true", "alerts.runbooks=https://example.com/books"), "PrometheusRule")["spec"]
    source = yaml.safe_load(
        (CHART / "alerts/rules.yaml").read_text().replace("docs/runbooks.md", "https://example.com/books")
    )
    assert spec == source
    assert "{{ $labels.job }}" in str(spec)


def test_alerts_without_scraping_are_rejected(render: Render) -> None:
    unscraped = ("alerts.enabled=true", "metrics.scrapeAnnotations=false")
    with pytest.raises(ValueError, match=r"alerts\.enabled: .*set metrics\.serviceMonitor\.enabled=true"):
        render(*unscraped)
    assert only(render(*unscraped, "metrics.serviceMonitor.enabled=true"), "PrometheusRule")


def test_the_monitors_select_the_labels_of_operator_and_heads(render: Render) -> None:
    from rlt_core.children.attachment import DECLARED_PORTS
    from rlt_core.children.pod_template import HEAD_PORTS
    from rlt_core.names import JOB_LABEL, RAY_METRICS_PORT
    from rlt_pod.report.driver_report import METRICS_PORT

    manifests = render("metrics.podMonitor.enabled=true", "metrics.serviceMonitor.enabled=true")
    trainers, ray = (monitor["spec"] for monitor in of_kind(manifests, "PodMonitor"))
    assert not of_kind(render(), "PodMonitor")
    for spec in (trainers, ray):
        assert spec["selector"]["matchExpressions"] == [{"key": JOB_LABEL, "operator": "Exists"}]
    assert HEAD_PORTS[trainers["podMetricsEndpoints"][0]["port"]] == METRICS_PORT
    port, on_the_host = (endpoint["port"] for endpoint in ray["podMetricsEndpoints"])
    assert HEAD_PORTS[port] == RAY_METRICS_PORT
    assert on_the_host == DECLARED_PORTS["metrics-export-port"]
    selector = only(manifests, "ServiceMonitor")["spec"]["selector"]
    (names,) = selector["matchExpressions"]
    for find in (only, of_webhook):
        service = find(manifests, "Service")
        labels = service["metadata"]["labels"]
        assert selector["matchLabels"].items() <= labels.items()
        assert labels[names["key"]] in names["values"]
        pod = find(manifests, "Deployment")["spec"]["template"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_the_monitor_sends_a_token_to_the_port_that_requires_one(render: Render) -> None:
    manifests = render("metrics.serviceMonitor.enabled=true", "userRoles.create=false")
    (endpoint,) = only(manifests, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"insecureSkipVerify": True})
    assert endpoint["bearerTokenFile"].endswith("/serviceaccount/token")
    for find in (only, of_webhook):
        (container,) = find(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        options = build_parser().parse_args(container["args"])
        assert options.secure_metrics_port == ports[endpoint["port"]]
        assert endpoint["port"] in [port["name"] for port in find(manifests, "Service")["spec"]["ports"]]
    (reader,) = (each for each in of_kind(manifests, "ClusterRole") if "reader" in each["metadata"]["name"])
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_without_authentication_the_metrics_are_open(render: Render) -> None:
    values = ("metrics.serviceMonitor.enabled=true", "metrics.authentication=false", "userRoles.create=false")
    manifests = render(*values)
    assert only(manifests, "ServiceMonitor")["spec"]["endpoints"][0]["port"] == "metrics"
    assert "--secure-metrics-port" not in json.dumps(manifests)
    assert "authentication.k8s.io/tokenreviews" not in verbs(all_rules(of_kind(manifests, "ClusterRole")))


def test_scrape_annotations_contain_the_served_port(render: Render) -> None:
    def annotations(*values: str) -> Manifest:
        return dict(only(render(*values), "Deployment")["spec"]["template"]["metadata"]["annotations"])

    assert annotations("metrics.securePort=9000")["prometheus.io/port"] == "9000"
    assert annotations()["prometheus.io/scheme"] == "https"
    open_metrics = annotations("metrics.port=9000", "metrics.authentication=false")
    assert open_metrics["prometheus.io/port"] == "9000"
    assert "prometheus.io/scheme" not in open_metrics
    assert "prometheus.io/scrape" not in annotations("metrics.scrapeAnnotations=false")


def test_a_digest_takes_precedence_over_the_tag(render: Render) -> None:
    digest = "sha256:" + "0a" * 32
    pod = only(render(f"image.digest={digest}", "image.tag=dev"), "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"rlt-operator@{digest}"


def test_security_md_lists_the_verbs_of_the_roles() -> None:
    text = (CHART.parents[1] / "SECURITY.md").read_text().partition("## Permissions of the operator")[2]
    listed: dict[str, set[str]] = {}
    for row in text.partition("\n## ")[0].splitlines():
        cells = row.split("|")
        if len(cells) > 3:
            for resource in re.findall(r"`([a-z/]+)`", cells[1]):
                listed.setdefault(resource, set()).update(cells[2].replace(",", " ").split())
    used: dict[str, set[str]] = {}
    for resource, verbs_of in (*USED.items(), *USED_CLUSTER_WIDE.items(), *USED_WITH_LABELS.items()):
        used.setdefault(resource.partition("/")[2], set()).update(verbs_of)
    assert listed == used
