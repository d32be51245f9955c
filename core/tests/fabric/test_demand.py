"""The demand of a spec, and sizes that depend on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fabric.node_builders import GPUS, HCA, IB, node, nvidia, pair
from fabric.node_set import NVIDIA

from rlt_api.spec.runtime import list_accelerators
from rlt_api.validation.validate import validate_job
from rlt_core.fabric.decision import decide_group_fabric, explain_fabric
from rlt_core.fabric.demand import UNREAD_VALUE, Demand, build_demands
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.fabric.settings import Attachment

JOB: dict[str, Any] = {
    "runtimeRef": {"name": "gpus"},
    "model": {"path": "m", "parameters": "7B"},
    "cluster": {"env": [{"name": "NCCL_IB_TC", "value": "1"}], "workers": [{"replicas": 3}]},
}
RUNTIME: dict[str, Any] = {
    "nodePools": [
        {
            "name": "p",
            "resources": {"cpu": "8", "memory": "512Gi"},
            "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
            "nodeSelector": {"pool": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }
    ],
    "defaults": {
        "cluster": {"env": [{"name": "NCCL_IB_TC", "value": "2"}, {"name": "NCCL_IB_SL", "value": "3"}]},
        "network": {"socketInterface": "bond0"},
    },
}


def demanded(job: dict[str, Any], runtime: dict[str, Any] | None = None) -> Demand:
    spec = validate_job("sum", job, runtime).spec
    assert spec
    (demand,) = build_demands(spec, job, list_accelerators(runtime or {}))
    return demand


def test_fields_of_the_runtime_count_as_the_admins() -> None:
    demand = demanded(JOB, RUNTIME)
    assert (demand.resource, demand.count, demand.workers) == ("nvidia.com/gpu", 8, 3)
    assert demand.user_env == (("NCCL_IB_TC", "1"),)
    assert demand.admin_env == (("NCCL_IB_SL", "3"),)
    assert demand.admin_fields == {"socket_interface"}
    assert demand.node_selector == {"pool": "a"}
    assert demand.shared_memory
    assert demand.shared_memory.model == 2 * 2**30
    assert demand.attach is None


def test_a_pool_of_the_runtime_declares_its_accelerator() -> None:
    assert demanded(JOB, RUNTIME).declared
    own = {"cluster": {"image": "i", "workers": [{"accelerator": {"resourceName": "nvidia.com/gpu", "count": 8}}]}}
    assert demanded(own, RUNTIME).declared
    assert not demanded(own).declared
    other = {"cluster": {"image": "i", "workers": [{"accelerator": {"resourceName": "nvidia.com/gpus", "count": 8}}]}}
    assert not demanded(other, RUNTIME).declared


def test_values_from_secrets_are_not_read() -> None:
    job = {"cluster": {"image": "i", "env": [{"name": "NCCL_X", "secretKeyRef": {"name": "s", "key": "k"}}]}}
    demand = demanded(job)
    assert demand.user_env == (("NCCL_X", UNREAD_VALUE),)


def test_the_pod_template_counts_as_the_users() -> None:
    container = {
        "name": "ray-worker",
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
        "resources": {"limits": {"amd.com/gpu": 8, "cpu": 1}},
    }
    group = {"podTemplate": {"spec": {"containers": [container]}}}
    job = {"cluster": {"image": "i", "workers": [group]}, "network": {"attach": "podNetwork"}}
    demand = demanded(job)
    assert demand.user_env == (("NCCL_DEBUG", "INFO"),)
    assert demand.other_resources == ("amd.com/gpu",)
    assert demand.attach == "podNetwork"


def test_an_interface_of_the_runtime_has_the_runtime_as_source() -> None:
    demand = Demand("nvidia.com/gpu", 8, socket_interface="bond0", admin_fields=frozenset({"socket_interface"}))
    found = explain_fabric(pair(nvidia() | IB, GPUS | HCA), demand)
    setting = next(each for each in found["env"] if each["name"] == "GLOO_SOCKET_IFNAME")
    assert setting["value"] == "bond0"
    assert setting["source"].startswith("RLRuntime")
    assert not found["overriddenByUser"]


def test_too_little_shared_memory_is_a_warning() -> None:
    resources = {"cpu": "1", "memory": "64Gi", "sharedMemory": "1Gi"}
    group = {"resources": resources, "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8}}
    demand = demanded({"cluster": {"image": "i", "workers": [group]}})
    warnings = decide_group_fabric(parse_nodes(pair(nvidia(), GPUS)), demand).warnings
    assert any("No space left on device" in warning for warning in warnings)
    assert not decide_group_fabric(parse_nodes(pair(nvidia(), GPUS)), replace(demand, shared_memory=None)).warnings


def find_warnings_of(*nodes: dict[str, str], memory: str | None = None) -> list[str]:
    """The warnings for nodes with these labels, each with 8 NVIDIA GPUs."""
    accelerator = {"resourceName": "nvidia.com/gpu", "count": 8} | ({"memory": memory} if memory else {})
    demand = replace(
        demanded({"cluster": {"image": "i", "workers": [{"accelerator": accelerator}]}}), shared_memory=None
    )
    items = [node(f"node-{index}", nvidia() | labels, GPUS) for index, labels in enumerate(nodes)]
    return list(decide_group_fabric(parse_nodes(items), demand).warnings)


def test_nodes_of_another_architecture_than_amd64_are_a_warning() -> None:
    amd64, arm64 = ({"kubernetes.io/arch": name} for name in ("amd64", "arm64"))
    assert find_warnings_of(amd64, {}) == []
    assert find_warnings_of(arm64, arm64) == ["the nodes are arm64: the images of the job must have arm64"]
    (mixed,) = find_warnings_of(amd64, arm64)
    assert mixed.startswith("candidate nodes have different architectures (amd64, arm64): ")


def test_the_architecture_of_a_pool_without_nodes_comes_from_its_selector() -> None:
    demand = Demand("nvidia.com/gpu", 4, declared=True, node_selector={"kubernetes.io/arch": "arm64"})
    warnings = decide_group_fabric((), demand).warnings
    assert "the nodes are arm64: the images of the job must have arm64" in warnings


def test_more_memory_than_the_gpus_have_is_a_warning() -> None:
    """Values of GFD: H100 80 GB, A100 40 GB, L40S 48 GB."""
    h100, a100, l40s = ({"nvidia.com/gpu.memory": mebibytes} for mebibytes in ("81559", "40960", "46068"))
    assert find_warnings_of(h100, memory="80Gi") == []
    assert find_warnings_of(h100, memory="40Gi") == []
    assert find_warnings_of(l40s, memory="48Gi") == []
    assert find_warnings_of(a100) == []
    for label in ("", "0", "unknown"):
        assert find_warnings_of({"nvidia.com/gpu.memory": label}, memory="80Gi") == []
    (warning,) = find_warnings_of(h100, a100, memory="80Gi")
    assert warning.startswith("accelerator.memory is 80Gi, but GPUs of candidate nodes have 40Gi (label nvidia.com/gpu")


def test_a_worker_on_part_of_a_node_gets_a_share_of_its_devices() -> None:
    whole = Attachment("podNetwork", (("rdma/hca_shared_devices_a", 1), ("vpc.amazonaws.com/efa", 32)))
    assert whole.share(8, 8) == {"rdma/hca_shared_devices_a": 1, "vpc.amazonaws.com/efa": 32}
    assert whole.share(2, 8) == {"rdma/hca_shared_devices_a": 1, "vpc.amazonaws.com/efa": 8}


def test_every_privilege_has_a_warning() -> None:
    demand = Demand("nvidia.com/gpu", 8, ptrace=True, unconfined=True, privileged=True)
    found = decide_group_fabric(parse_nodes([node("n", nvidia(), GPUS)]), demand)
    assert "SYS_PTRACE" in found.settings.capabilities
    for field in ("ptrace", "unconfined", "privileged"):
        assert any(f"security.{field}" in warning for warning in found.warnings)


def test_ptrace_without_privileges_has_no_effect() -> None:
    warnings = decide_group_fabric(parse_nodes([node("n", nvidia(), GPUS)]), replace(NVIDIA, ptrace=True)).warnings
    assert any("security.ptrace has no effect" in warning and "user 1000" in warning for warning in warnings)


def test_verbs_need_ipc_lock_and_tcp_does_not() -> None:
    with_verbs = decide_group_fabric(parse_nodes(pair(nvidia() | IB, GPUS | HCA)), NVIDIA)
    without = decide_group_fabric(parse_nodes(pair(nvidia(), GPUS)), NVIDIA)
    assert with_verbs.settings.capabilities == ("IPC_LOCK",)
    assert without.settings.capabilities == ()


def test_amd_gets_the_group_video() -> None:
    found = decide_group_fabric(parse_nodes([node("n", {}, {"amd.com/gpu": 8})]), Demand("amd.com/gpu", 8))
    assert found.settings.groups == (44,)
    assert not any("VISIBLE_DEVICES" in setting.name for setting in found.settings.env)
