"""No candidate node, and demands that no profile meets."""

from __future__ import annotations

from dataclasses import replace

from fabric.node_builders import (
    AMD_GPUS,
    GPUS,
    HCA,
    IB,
    ROCE,
    TYPE,
    amd,
    node,
    nvidia,
    pair,
)
from fabric.node_set import NVIDIA, RDMA_ONLY, Case

from rlt_api.blocks.resources import Toleration
from rlt_core.fabric.demand import Demand

COREWEAVE = {"backend.coreweave.cloud/flavor": "infiniband", "backend.coreweave.cloud/leafgroup": "1"}

REJECTED: dict[str, Case] = {
    # no candidates
    "empty": Case([], NVIDIA, "tcp", "none", warns=("no node exists",)),
    "empty-require-rdma": Case([], RDMA_ONLY, "tcp", "none", rejected="RdmaNotFound"),
    "scale-from-zero-p5": Case(
        [node("cpu", {}, {})],
        Demand("nvidia.com/gpu", 8, 2, node_selector={TYPE: "p5.48xlarge"}, require="rdma"),
        "aws-efa",
        "efa",
        warns=("p5.48xlarge",),
    ),
    "scale-from-zero-mi300x": Case(
        [], Demand("amd.com/gpu", 8, 2, node_selector={TYPE: "BM.GPU.MI300X.8"}), "oracle-roce-amd", "roce"
    ),
    "scale-from-zero-beside-cpu-nodes": Case(
        pair({TYPE: "m5.large"}, {}),
        Demand("nvidia.com/gpu", 8, 2, declared=True),
        "tcp",
        "none",
        warns=("none of 2 nodes has nvidia.com/gpu, and their type is not declared",),
    ),
    "scale-from-zero-with-a-named-profile": Case(
        pair({}, {}),
        replace(RDMA_ONLY, declared=True, profile="onprem-roce", other_resources=("rdma/roce",)),
        "onprem-roce",
        "roce",
        warns=("follow network.profile onprem-roce",),
    ),
    "declared-without-device-plugin": Case(
        [node("cpu", {}, {}), node("gpu", nvidia(), {})],
        Demand("nvidia.com/gpu", 8, 2, declared=True),
        "tcp",
        "none",
        rejected="ResourceNotFound",
    ),
    "all-cordoned": Case(
        pair(nvidia() | IB, GPUS | HCA, unschedulable=True),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        rejected="NoCandidate",
    ),
    "unhealthy-nodes-are-excluded": Case(
        [
            node("healthy", nvidia() | IB, GPUS | HCA),
            node("tainted", nvidia(), GPUS, taints=[{"key": "nvidia.com/gpu-error", "effect": "PreferNoSchedule"}]),
            node(
                "labeled",
                nvidia() | {"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReboot"},
                GPUS,
            ),
            node("conditioned", nvidia(), GPUS, conditions={"AcceleratedHardwareReady": "False"}),
            node("not-ready", nvidia(), GPUS, ready=False),
            node("reserved", nvidia(), GPUS, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
        ],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
    ),
    "tolerated": Case(
        pair(nvidia(), GPUS, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
        Demand("nvidia.com/gpu", 8, 2, tolerations=(Toleration(key="team", value="a"),)),
        "tcp",
        "tcp",
    ),
    # bad input
    "no-such-resource": Case(pair({}, {}), NVIDIA, "tcp", "none", rejected="ResourceNotFound"),
    "more-than-any-node": Case(
        pair(nvidia(), GPUS), Demand("nvidia.com/gpu", 16, 1), "tcp", "none", rejected="TooManyAccelerators"
    ),
    "tpu": Case(
        pair({}, {"google.com/tpu": 4}), Demand("google.com/tpu", 4), "cpu-only", "tcp", "UnsupportedAccelerator"
    ),
    "gaudi": Case(
        pair({}, {"habana.ai/gaudi": 8}), Demand("habana.ai/gaudi", 8), "cpu-only", "tcp", "UnsupportedAccelerator"
    ),
    "two-vendors": Case(
        pair(nvidia(), GPUS),
        Demand("nvidia.com/gpu", 8, 2, other_resources=("amd.com/gpu",)),
        "tcp",
        "tcp",
        rejected="TwoVendors",
    ),
    "hcas-match-nothing": Case(
        pair(nvidia() | COREWEAVE, GPUS | {"rdma/ib": 1}),
        Demand("nvidia.com/gpu", 8, 2, hcas=("mlx5_0", "mlx5_1")),
        "coreweave-infiniband",
        "infiniband",
        rejected="HcaMatchesNothing",
    ),
    "user-disables-ib": Case(
        pair(nvidia() | IB, GPUS | HCA),
        Demand("nvidia.com/gpu", 8, 2, require="rdma", user_env=(("NCCL_IB_DISABLE", "1"),)),
        "onprem-infiniband",
        "infiniband",
        rejected="RdmaDisabledByUser",
    ),
    "rocr-alone": Case(
        pair(amd() | ROCE, AMD_GPUS | HCA),
        Demand("amd.com/gpu", 8, 2, user_env=(("ROCR_VISIBLE_DEVICES", "0,1"),)),
        "amd-roce-mlx5",
        "roce",
        rejected="DeviceVisibility",
    ),
    "unknown-profile": Case(
        pair(nvidia(), GPUS), Demand("nvidia.com/gpu", 8, 2, profile="warp"), "tcp", "tcp", rejected="UnknownProfile"
    ),
    "profile-of-other-vendor": Case(
        pair(nvidia(), GPUS),
        Demand("nvidia.com/gpu", 8, 2, profile="amd-roce"),
        "amd-roce",
        "roce",
        rejected="ProfileDoesNotFit",
    ),
    "attach-that-does-not-work": Case(
        pair(nvidia() | COREWEAVE, GPUS | {"rdma/ib": 1}),
        Demand("nvidia.com/gpu", 8, 2, attach="multus"),
        "coreweave-infiniband",
        "infiniband",
        rejected="AttachNotPossible",
    ),
    "user-overrides": Case(
        pair(nvidia() | ROCE, GPUS | HCA),
        Demand(
            "nvidia.com/gpu",
            8,
            2,
            user_env=(("NCCL_IB_HCA", "=mlx5_0,mlx5_1"), ("WANDB_MODE", "offline")),
            admin_env=(("NCCL_IB_TC", "106"), ("NCCL_IB_HCA", "mlx5_2")),
            socket_interface="bond0",
        ),
        "onprem-roce",
        "roce",
    ),
}
