"""The fabric decision of a job: in the status before its children are created, and what blocks the job."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any

import observed as o
from fabric.node_builders import GPUS, HCA, IB, TYPE, node, nvidia, pair

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason, find_reason
from rlt_api.status.job_status import RLTrainingJobStatus, RuntimeSnapshot
from rlt_api.status.network import NetworkAttachment, NetworkStatus
from rlt_core.children.attachment import choose_host_ports
from rlt_core.fabric import decision, rejections
from rlt_core.fabric.nodes import Node, parse_nodes
from rlt_core.job import Manifest, parse_job
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.observation import Observed
from rlt_operator.reconcile.plan import plan

INFINIBAND = parse_nodes(pair(nvidia() | IB, GPUS | HCA))


def fresh(nodes: tuple[Node, ...], **blocks: Any) -> Observed:
    """A new job on GPUs without a fabric decision."""
    return Observed(parse_job(o.manifest({**o.ON_GPUS, **blocks})), nodes=nodes)


def status_after(observed: Observed) -> RLTrainingJobStatus:
    status = plan(observed, o.NOW).status
    assert status
    return status


def reason(status: RLTrainingJobStatus, type: C) -> str:
    found = find_condition(status, type)
    assert found
    return found.reason


def rendered(observed: Observed) -> tuple[Manifest, ...]:
    """The objects that the second reconciliation applies."""
    return plan(o.after(observed), o.NOW).apply


def worker(observed: Observed) -> Manifest:
    (group,) = rendered(observed)[-1]["spec"]["workerGroupSpecs"]
    template: Manifest = group["template"]
    return template


def test_the_status_holds_the_fabric_decision_before_children_are_created() -> None:
    first = plan(fresh(INFINIBAND), o.NOW)
    assert first.apply == ()
    assert first.requeue_after == 0
    assert first.status
    assert first.status.network
    assert first.status.network.profile == "onprem-infiniband"
    assert is_true(first.status, C.FABRIC_VERIFIED)


def test_the_children_follow_the_decision_in_the_status() -> None:
    decided = o.after(fresh(INFINIBAND))
    elsewhere = replace(decided, nodes=parse_nodes(pair(nvidia(), GPUS)))
    assert plan(elsewhere, o.NOW).apply == plan(decided, o.NOW).apply


def test_a_job_that_requires_rdma_waits_for_nodes_with_rdma() -> None:
    blocked = o.after(fresh(parse_nodes(pair(nvidia(), GPUS)), network={"require": "rdma"}))
    for observed in (blocked, o.after(blocked)):
        assert plan(observed, o.NOW).apply == ()
        assert reason(observed.job.status, C.FABRIC_VERIFIED) == Reason.RDMA_NOT_FOUND
        assert is_true(observed.job.status, C.STALLED)


def test_a_waiting_job_starts_when_nodes_with_rdma_exist() -> None:
    blocked = o.after(fresh(parse_nodes(pair(nvidia(), GPUS)), network={"require": "rdma"}))
    repaired = o.after(replace(blocked, nodes=INFINIBAND))
    assert is_true(repaired.job.status, C.FABRIC_VERIFIED)
    assert [manifest["kind"] for manifest in plan(repaired, o.NOW).apply] == [
        "Secret",
        "RayCluster",
    ]


def test_cordoned_nodes_block_only_jobs_that_require_rdma() -> None:
    cordoned = fresh(parse_nodes(pair(nvidia(), GPUS, unschedulable=True)))
    assert reason(status_after(cordoned), C.FABRIC_VERIFIED) == Reason.NO_CANDIDATE
    assert rendered(cordoned)
    rdma = fresh(parse_nodes(pair(nvidia() | IB, GPUS | HCA, unschedulable=True)), network={"require": "rdma"})
    assert not rendered(rdma)


def test_nodes_that_disagree_are_reported_and_do_not_block() -> None:
    mixed = fresh(parse_nodes([node("a", nvidia() | IB, GPUS | HCA), node("b", nvidia(), GPUS)]))
    assert reason(status_after(mixed), C.FABRIC_VERIFIED) == Reason.NODES_DISAGREE
    assert rendered(mixed)


def test_without_nodes_fabric_verified_is_unknown() -> None:
    found = find_condition(status_after(fresh(())), C.FABRIC_VERIFIED)
    assert found
    assert (found.status, found.reason) == ("Unknown", Reason.NO_NODES)


def test_a_node_pool_with_zero_nodes_does_not_block() -> None:
    pool = {"name": "gpus", **o.ON_GPUS["cluster"]["workers"][0], "nodeSelector": {TYPE: "p5.48xlarge"}}
    cpus = {"name": "cpus", "resources": {"cpu": "1", "memory": "2Gi"}, "nodeSelector": {TYPE: "m5.large"}}
    del pool["replicas"]
    runtime = RuntimeSnapshot(name="r", generation=1, spec={"nodePools": [cpus, pool]})
    asked = {"accelerator": {"resourceName": "nvidia.com/gpu", "count": 8}}
    spec = {**o.COMMAND_SPEC, "runtimeRef": {"name": "r"}, "cluster": {"image": "i", "workers": [asked]}}
    observed = Observed(parse_job(o.manifest(spec), runtime), nodes=parse_nodes(pair({TYPE: "m5.large"}, {})))
    network = status_after(observed).network
    assert network
    assert (network.profile, network.rejection) == ("aws-efa", None)
    assert worker(observed)["spec"]["nodeSelector"] == {TYPE: "p5.48xlarge"}


def test_a_suspended_job_has_no_fabric_decision() -> None:
    suspended = o.after(o.suspend(o.after(fresh(INFINIBAND))))
    assert suspended.job.status.network is None
    assert find_condition(suspended.job.status, C.FABRIC_VERIFIED) is None


def test_nodes_marked_by_a_health_controller_are_excluded() -> None:
    unhealthy = node(
        "unhealthy", nvidia() | IB | {"sagemaker.amazonaws.com/node-health-status": "Unschedulable"}, GPUS | HCA
    )
    affinity = worker(fresh((*INFINIBAND, *parse_nodes([unhealthy]))))["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["unhealthy"]}]


def test_pods_on_the_host_network_declare_their_ports() -> None:
    rendered_cluster = rendered(fresh(INFINIBAND, network={"attach": "hostNetwork", "socketInterface": "bond0"}))[-1]
    (group,) = rendered_cluster["spec"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    declared = {str(port["containerPort"]) for port in pod["containers"][0]["ports"]}
    start = group["rayStartParams"]
    fixed = {name: value for name, value in start.items() if name.endswith("-port")}
    first = int(fixed.pop("min-worker-port"))
    last = int(fixed.pop("max-worker-port"))
    assert declared == set(fixed.values())
    assert len(declared) == 6
    assert last - first == 999
    head = rendered_cluster["spec"]["headGroupSpec"]["rayStartParams"]
    assert not [name for name in head if name.endswith("-port")]
    assert "hostNetwork" not in rendered_cluster["spec"]["headGroupSpec"]["template"]["spec"]


def test_the_ports_of_all_jobs_are_below_the_ports_of_services_and_differ() -> None:
    """Ray rejects a port that two of its components use (ray/_private/parameter.py)."""
    attach = NetworkAttachment(mode="hostNetwork")
    worker_ports = set[int]()
    for number in range(200):
        ports = choose_host_ports(replace(o.job(), uid=str(number)), attach)
        first = ports.pop("min-worker-port")
        last = ports.pop("max-worker-port")
        assert len(set(ports.values())) == 6
        assert all(20000 <= port < 23000 for port in ports.values())
        assert 23000 <= first < last < 30000
        worker_ports.add(first)
    assert len(worker_ports) == 7


def test_privileges_require_an_explicit_setting() -> None:
    choice = {"ptrace": True, "unconfined": True}
    pod = worker(fresh(parse_nodes(pair(nvidia(), GPUS)), security=choice))["spec"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "Unconfined"}
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    privileged = worker(fresh(INFINIBAND, security={"privileged": True}))["spec"]["containers"][0]
    assert privileged["securityContext"] == {"privileged": True}


def test_multi_node_nvlink_uses_one_compute_domain() -> None:
    clique = {"nvidia.com/gpu.clique": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"}
    nodes = parse_nodes(pair(nvidia("NVIDIA-GB200", **clique) | IB, {"nvidia.com/gpu": 8} | HCA))
    domain, *_, cluster = rendered(fresh(nodes))
    assert domain["kind"] == "ComputeDomain"
    (group,) = cluster["spec"]["workerGroupSpecs"]
    (claim,) = group["template"]["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    assert group["template"]["spec"]["containers"][0]["resources"]["claims"] == [{"name": claim["name"]}]


def test_groups_with_different_settings_get_the_generic_profile() -> None:
    (group,) = o.ON_GPUS["cluster"]["workers"]
    groups = [{**group, "name": name, "nodeSelector": {"kubernetes.io/hostname": name}} for name in ("a", "b")]
    nodes = parse_nodes([node("a", nvidia() | IB, GPUS | HCA), node("b", nvidia(), GPUS)])
    network = status_after(fresh(nodes, cluster={**o.ON_GPUS["cluster"], "workers": groups})).network
    assert network
    assert (network.profile, network.agree, network.candidates) == ("generic", False, 2)


def test_groups_that_agree_share_one_decision() -> None:
    (group,) = o.ON_GPUS["cluster"]["workers"]
    groups = [{**group, "name": name} for name in ("train", "infer")]
    network = status_after(fresh(INFINIBAND, cluster={**o.ON_GPUS["cluster"], "workers": groups})).network
    assert network
    assert (network.profile, network.agree, network.candidates) == ("onprem-infiniband", True, 2)


def test_a_cpu_group_gets_no_fabric_settings() -> None:
    (group,) = o.ON_GPUS["cluster"]["workers"]
    cpus = {"name": "rewards", "resources": {"cpu": "4", "memory": "8Gi"}}
    cluster = {**o.ON_GPUS["cluster"], "workers": [group, cpus]}
    network = {"attach": "hostNetwork", "socketInterface": "bond0"}
    rendered_cluster = rendered(fresh(INFINIBAND, cluster=cluster, network=network))[-1]
    on_gpus, on_cpus = rendered_cluster["spec"]["workerGroupSpecs"]
    assert on_gpus["template"]["spec"]["hostNetwork"]
    assert "hostNetwork" not in on_cpus["template"]["spec"]
    assert "metrics-export-port" not in on_cpus["rayStartParams"]
    assert on_cpus["template"]["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_attachment_by_claim_requires_the_claim() -> None:
    network = status_after(fresh(INFINIBAND, network={"attach": "dra"})).network
    assert network
    assert network.rejection
    assert network.rejection.code == Reason.ATTACH_NOT_POSSIBLE


def test_the_evidence_of_many_nodes_is_truncated() -> None:
    nodes = [node(f"n{index}", nvidia(f"NVIDIA-X{index}"), GPUS) for index in range(500)]
    network = status_after(fresh(parse_nodes(nodes))).network
    assert network
    assert len(network.evidence) == 32
    assert network.evidence[-1].startswith("and ")
    assert network.candidates == 500


def test_every_rejection_has_a_reason_that_is_a_problem() -> None:
    codes = set(re.findall(r'Rejection\(\s*"(\w+)"', inspect.getsource(rejections) + inspect.getsource(decision)))
    reasons = [find_reason(code) for code in codes]
    assert len(reasons) > 10
    assert all(reason and reason.problem and not reason.final for reason in reasons)


def test_the_network_status_round_trips() -> None:
    network = status_after(fresh(INFINIBAND)).network
    assert network
    assert NetworkStatus.model_validate(network.to_json()) == network
