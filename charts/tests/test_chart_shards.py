"""Shards of the operator: a container for each in every pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_chart import all_rules, of_kind, only, verbs

from rlt_core.shards import MAX_SHARDS, Shard, name_lease
from rlt_operator.__main__ import build_parser

pytestmark = pytest.mark.apiserver

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]
MONITORED = "metrics.serviceMonitor.enabled=true"


def containers_of(manifests: list[Manifest]) -> list[Manifest]:
    containers: list[Manifest] = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return containers


def cluster_rules(manifests: list[Manifest]) -> list[Manifest]:
    """The rules of the operator in the cluster."""
    roles = of_kind(manifests, "ClusterRole")
    return all_rules([each for each in roles if each["metadata"]["name"] == "rlt-operator"])


def test_each_shard_has_a_container_with_its_own_ports(render: Render) -> None:
    manifests = render("shards=3")
    containers = containers_of(manifests)
    assert [each["name"] for each in containers] == ["operator", "operator-1", "operator-2"]
    options = [build_parser().parse_args(each["args"]) for each in containers]
    assert [each.shard for each in options] == [Shard(number, 3) for number in range(3)]
    ports = [port for each in containers for port in each["ports"]]
    assert len({port["name"] for port in ports}) == len({port["containerPort"] for port in ports}) == 6
    for container, option in zip(containers, options, strict=True):
        served = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert set(served.values()) == {option.metrics_port, option.secure_metrics_port}
        probes = {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("readiness", "startup", "liveness")}
        assert [served[port] for port in probes] == [option.metrics_port]
    targets = {port["targetPort"] for port in only(manifests, "Service")["spec"]["ports"]}
    (policy,) = (each for each in of_kind(manifests, "NetworkPolicy") if each["metadata"]["name"] == "rlt-operator")
    admitted = {port["port"] for port in policy["spec"]["ingress"][0]["ports"]}
    assert targets == admitted == {port["name"] for port in ports}


def test_all_shards_share_a_lease_and_may_write_those_of_any_number_of_shards(render: Render) -> None:
    """During an upgrade, pods with another number of shards have the same Role."""
    manifests = render("shards=2")
    leases = {build_parser().parse_args(each["args"]).leader_election_lease for each in containers_of(manifests)}
    assert leases == {("rlt-system", "rlt-operator")}
    rules = [rule for rule in all_rules(of_kind(manifests, "Role")) if rule["resources"] == ["leases"]]
    named = {verb: rule.get("resourceNames") for rule in rules for verb in rule["verbs"]}
    names = ["rlt-operator", *(name_lease("rlt-operator", number) for number in range(MAX_SHARDS))]
    assert named == {"get": names, "update": names, "create": None}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["shards=1"], {"get"}),
        (["shards=2"], {"get", "list", "watch"}),
        (["shards=2", "watchNamespaces={team-a}"], set()),
        (["shards=2", "watchNamespaceLabels.team=a"], {"get", "list", "watch"}),
    ],
)
def test_shards_find_their_namespaces_unless_they_are_named(
    render: Render, values: list[str], expected: set[str]
) -> None:
    assert verbs(cluster_rules(render(*values))).get("/namespaces", set()) == expected


def test_one_shard_writes_the_certificate(render: Render) -> None:
    options = [build_parser().parse_args(each["args"]) for each in containers_of(render("shards=3"))]
    assert [bool(each.secret) for each in options] == [True, False, False]


def test_the_monitor_scrapes_each_shard_and_names_it(render: Render) -> None:
    endpoints = only(render("shards=2", MONITORED), "ServiceMonitor")["spec"]["endpoints"]
    relabeled = [(each["port"], each["relabelings"][0]["replacement"]) for each in endpoints]
    assert relabeled == [("https-metrics", "0"), ("https-metrics-1", "1")]
    assert all(each["relabelings"][0]["targetLabel"] == "shard" for each in endpoints)
    assert "relabelings" not in only(render(MONITORED), "ServiceMonitor")["spec"]["endpoints"][0]


def test_annotations_that_name_one_port_are_left_out(render: Render) -> None:
    metadata = only(render("shards=2"), "Deployment")["spec"]["template"]["metadata"]
    assert not [name for name in metadata["annotations"] if name.startswith("prometheus.io/")]


def test_ports_that_would_collide_are_rejected(render: Render) -> None:
    with pytest.raises(ValueError, match=r"metrics\.port 8441 and metrics\.securePort 8443: .* at least 3 apart"):
        render("shards=3", "metrics.port=8441")
    assert len(containers_of(render("shards=2", "metrics.port=8441"))) == 2
