"""Node sets of the golden matrix, each with a demand and the expected decision."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fabric.node_builders import (
    AMD_GPUS,
    GPUS,
    HCA,
    IB,
    NFD,
    ROCE,
    TYPE,
    Manifest,
    amd,
    aws,
    azure,
    gke,
    node,
    nvidia,
    oracle,
    pair,
)

from rlt_api.blocks.resources import Toleration
from rlt_core.fabric.demand import Demand

NVIDIA = Demand("nvidia.com/gpu", 8, 2)
AMD = Demand("amd.com/gpu", 8, 2)
ON_CPU = Demand(workers=2)


@dataclass(frozen=True)
class Case:
    """One node set and demand, with the expected decision, independent of the golden file."""

    nodes: list[Manifest]
    demand: Demand
    profile: str
    fabric: str
    refused: str | None = None
    agree: bool = True
    warns: tuple[str, ...] = field(default=())


RAILS = [f"rdma-{rail}" for rail in range(8)]
CLIQUE = {"nvidia.com/gpu.clique": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"}
GB200 = nvidia("NVIDIA-GB200", **CLIQUE)
GB_DEMAND = Demand("nvidia.com/gpu", 4, 2)
RDMA_ONLY = Demand("nvidia.com/gpu", 8, 2, require="rdma")
MOFED = {"network.nvidia.com/operator.mofed.wait": "false"}
COREWEAVE = {"backend.coreweave.cloud/flavor": "infiniband", "backend.coreweave.cloud/leafgroup": "1"}

CASES: dict[str, Case] = {
    # on premises
    "onprem-ib": Case(pair(nvidia() | IB, GPUS | HCA), NVIDIA, "onprem-infiniband", "infiniband"),
    "onprem-ib-vendor-only-label": Case(
        pair(nvidia() | {f"{NFD}/pci-15b3.present": "true"}, GPUS | HCA),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("InfiniBand is assumed",),
    ),
    "onprem-ib-by-resource-name": Case(
        pair(nvidia(), GPUS | {"rdma/rdma_shared_device_ib": 63}), NVIDIA, "onprem-infiniband", "infiniband"
    ),
    "onprem-ib-sriov": Case(
        pair(nvidia() | IB, GPUS | {"nvidia.com/sriov_ib_vf": 8}), NVIDIA, "onprem-infiniband", "infiniband"
    ),
    "onprem-ib-quantity-zero": Case(
        pair(nvidia() | IB, GPUS | {"rdma/hca_shared_devices_a": 0}), NVIDIA, "tcp", "tcp", warns=("missing",)
    ),
    "onprem-roce": Case(pair(nvidia() | ROCE, GPUS | HCA), NVIDIA, "onprem-roce", "roce", warns=("NCCL_IB_TC",)),
    "onprem-roce-old-nccl": Case(
        pair(nvidia() | ROCE, GPUS | HCA),
        Demand("nvidia.com/gpu", 8, 2, user_env=(("NCCL_VERSION", "2.18.5"),)),
        "onprem-roce",
        "roce",
    ),
    "onprem-roce-by-name-host-network": Case(
        pair(nvidia(), GPUS | {"rdma/roce_gpu": 8}),
        Demand("nvidia.com/gpu", 8, 2, attach="hostNetwork"),
        "onprem-roce",
        "roce",
        warns=("socketInterface",),
    ),
    "tcp": Case(pair(nvidia("NVIDIA-L40S"), GPUS), NVIDIA, "tcp", "tcp"),
    "tcp-old-vllm": Case(
        pair(nvidia("A100-SXM4-40GB"), GPUS),
        Demand("nvidia.com/gpu", 8, 2, user_env=(("VLLM_VERSION", "0.11.0"),)),
        "tcp",
        "tcp",
    ),
    "half-labelled": Case(pair({}, GPUS | HCA), NVIDIA, "onprem-infiniband", "infiniband", warns=("assumed",)),
    "labels-without-plugin": Case(
        pair(nvidia() | IB, GPUS), RDMA_ONLY, "tcp", "tcp", refused="RdmaNotFound", warns=("missing",)
    ),
    "require-tcp-on-ib": Case(
        pair(nvidia() | IB, GPUS | HCA), Demand("nvidia.com/gpu", 8, 2, require="tcp"), "tcp", "tcp"
    ),
    "site-domain": Case(
        pair(nvidia() | IB, GPUS | {"hpc.example.com/rdma_shared": 63}),
        RDMA_ONLY,
        "onprem-infiniband",
        "infiniband",
        warns=("pods get 1 of 63 hpc.example.com/rdma_shared",),
    ),
    "one-resource-per-rail": Case(
        pair(nvidia() | ROCE, GPUS | {f"nvidia.com/rail{rail}": 1 for rail in range(8)}),
        RDMA_ONLY,
        "onprem-roce",
        "roce",
        warns=("pods get all of nvidia.com/rail0, nvidia.com/rail1",),
    ),
    "site-domain-per-rail": Case(
        pair(nvidia() | IB, GPUS | {f"fabric.example.com/ib-rail-{rail}": 1 for rail in range(4)}),
        RDMA_ONLY,
        "onprem-infiniband",
        "infiniband",
        warns=("set it to null in limits and requests",),
    ),
    "two-shared-devices": Case(
        pair(nvidia() | IB, GPUS | HCA | {"rdma/hca_shared_devices_b": 8}),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("no name shows which of them is for storage",),
    ),
    "shared-and-virtual-functions": Case(
        pair(nvidia() | IB, GPUS | HCA | {"nvidia.com/sriov_ib_vf": 8}),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("pods do not get rdma/hca_shared_devices_a: network.attach multus uses nvidia.com/sriov_ib_vf alone",),
    ),
    "adapters-of-unknown-vendor": Case(
        pair(nvidia(), GPUS | {"rdma/ib_nic": 8}),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("NCCL_IB_HCA is not set",),
    ),
    "azure-dra-without-a-claim": Case(
        azure("Standard_ND96isr_H100_v5", GPUS, nvidia()),
        RDMA_ONLY,
        "tcp",
        "tcp",
        refused="RdmaNotFound",
        warns=("a resourceClaim of a DRA driver", "network.attach: dra"),
    ),
    "azure-dra": Case(
        azure("Standard_ND96isr_H100_v5", GPUS, nvidia()),
        replace(RDMA_ONLY, attach="dra"),
        "azure-infiniband",
        "infiniband",
    ),
    "onprem-dra-without-a-claim": Case(
        pair(nvidia() | IB, GPUS),
        replace(RDMA_ONLY, attach="dra", has_resource_claims=False),
        "tcp",
        "tcp",
        refused="AttachNotPossible",
        warns=("a resourceClaim of a DRA driver",),
    ),
    "aws-dra": Case(aws("p5.48xlarge", 0), replace(RDMA_ONLY, attach="dra"), "aws-efa", "efa"),
    "onprem-dra": Case(pair(nvidia() | IB, GPUS), replace(RDMA_ONLY, attach="dra"), "onprem-infiniband", "infiniband"),
    "two-cliques": Case(
        [
            node(
                f"{rack}-{index}",
                GB200 | {"nvidia.com/gpu.clique": f"7b968a6d.{rack}"} | IB,
                {"nvidia.com/gpu": 4, "rdma/ib_nic": 4},
            )
            for rack in (1, 2)
            for index in (1, 2)
        ],
        GB_DEMAND,
        "nvl72-infiniband",
        "mnnvl+infiniband",
        warns=("in 2 NVLink cliques: the workers are preferably placed in one",),
    ),
    "cliques-too-small": Case(
        [
            node(
                str(rack),
                GB200 | {"nvidia.com/gpu.clique": f"7b968a6d.{rack}"} | IB,
                {"nvidia.com/gpu": 4, "rdma/ib_nic": 4},
            )
            for rack in (1, 2)
        ],
        GB_DEMAND,
        "nvl72-infiniband",
        "mnnvl+infiniband",
        warns=("none has room for 2 workers (at most 1): between cliques they communicate by infiniband",),
    ),
    "nvl72-ib": Case(
        pair(GB200 | IB, {"nvidia.com/gpu": 4, "rdma/ib_nic": 4}), GB_DEMAND, "nvl72-infiniband", "mnnvl+infiniband"
    ),
    "nvl72-roce": Case(
        pair(nvidia("NVIDIA-GB300", **CLIQUE) | ROCE, {"nvidia.com/gpu": 4, "rdma/roce": 8}),
        GB_DEMAND,
        "nvl72-roce",
        "mnnvl+roce",
    ),
    "nvl72-alone": Case(pair(GB200, {"nvidia.com/gpu": 4}), GB_DEMAND, "nvl72-tcp", "mnnvl+tcp"),
    "gb200-without-clique": Case(
        pair(nvidia("NVIDIA-GB200") | IB, {"nvidia.com/gpu": 4, "rdma/ib_nic": 4}),
        GB_DEMAND,
        "onprem-infiniband",
        "infiniband",
        warns=("nvidia.com/gpu.clique",),
    ),
    # clouds
    "aws-p5": Case(aws("p5.48xlarge", 32), RDMA_ONLY, "aws-efa", "efa"),
    "aws-p5en": Case(aws("p5en.48xlarge", 16, "NVIDIA-H200"), NVIDIA, "aws-efa", "efa"),
    "aws-p4d-old-plugin": Case(
        aws("p4d.24xlarge", 4, "NVIDIA-A100-SXM4-40GB"),
        Demand("nvidia.com/gpu", 8, 2, admin_env=(("AWS_OFI_NCCL_VERSION", "1.5.0"),)),
        "aws-efa",
        "efa",
    ),
    "aws-p5-without-efa-plugin": Case(
        aws("p5.48xlarge", 0), RDMA_ONLY, "tcp", "tcp", refused="RdmaNotFound", warns=("vpc.amazonaws.com/efa",)
    ),
    "gke-a3-ultra": Case(gke("a3-ultragpu-8g", "nvidia-h200-141gb", RAILS), RDMA_ONLY, "gke-gib", "gib"),
    "gke-a4": Case(gke("a4-highgpu-8g", "nvidia-b200", RAILS), NVIDIA, "gke-gib", "gib"),
    "gke-a3-ultra-without-networks": Case(
        gke("a3-ultragpu-8g", "nvidia-h200-141gb", []),
        RDMA_ONLY,
        "gke-gib",
        "gib",
        refused="RdmaNotAttached",
        warns=("multi-networking",),
    ),
    "gke-a4-dranet": Case(
        gke("a4-highgpu-8g", "nvidia-b200", [], **{"cloud.google.com/gke-networking-dra-driver": "true"}),
        RDMA_ONLY,
        "gke-gib",
        "gib",
        refused="RdmaNotAttached",
        warns=("network.attach: dra, because these nodes have DRANET",),
    ),
    "mixed-drivers": Case(
        [
            node(name, nvidia(**{"nvidia.com/cuda.driver-version.full": version}) | IB, GPUS | HCA)
            for name, version in (("a", "570.86.15"), ("b", "535.230.02"))
        ],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("different drivers (535.230.02, 570.86.15)",),
    ),
    "gke-a3-mega": Case(
        gke("a3-megagpu-8g", "nvidia-h100-mega-80gb", [f"vpc{n}" for n in range(1, 9)]),
        NVIDIA,
        "gke-tcpxo",
        "tcpxo",
        warns=("tcpxo-daemon",),
    ),
    "gke-a3-high": Case(
        gke("a3-highgpu-8g", "nvidia-h100-80gb", [f"vpc{n}" for n in range(1, 5)]), NVIDIA, "gke-tcpx", "tcpx"
    ),
    "gke-a4x": Case(
        gke("a4x-highgpu-4g", "nvidia-gb200", RAILS[:4], gpus=4, **CLIQUE), GB_DEMAND, "gke-gib-nvl72", "mnnvl+gib"
    ),
    "gke-one-label-alone": Case(
        pair({"cloud.google.com/gke-accelerator": "nvidia-h200-141gb"}, GPUS), NVIDIA, "tcp", "tcp", warns=("alone",)
    ),
    "coreweave-ib": Case(
        pair(nvidia() | COREWEAVE, GPUS | {"rdma/ib": 1}), RDMA_ONLY, "coreweave-infiniband", "infiniband"
    ),
    "coreweave-roce": Case(
        pair(nvidia("NVIDIA-B200") | COREWEAVE | {"backend.coreweave.cloud/flavor": "roce"}, GPUS | {"rdma/ib": 1}),
        NVIDIA,
        "coreweave-roce",
        "roce",
    ),
    "coreweave-gb200": Case(
        pair(GB200 | COREWEAVE, {"nvidia.com/gpu": 4, "rdma/ib": 1}), GB_DEMAND, "coreweave-nvl72", "mnnvl+infiniband"
    ),
    "oracle-h100": Case(oracle("BM.GPU.H100.8", GPUS, nvidia()), RDMA_ONLY, "oracle-roce", "roce"),
    "oracle-b300-virtual-functions": Case(
        oracle("BM.GPU.B300.8", GPUS | {"nvidia.com/rdma-vf": 16}, nvidia("NVIDIA-B300")), NVIDIA, "oracle-roce", "roce"
    ),
    "oracle-gb200": Case(
        oracle("BM.GPU.GB200-v3.4", {"nvidia.com/gpu": 4}, GB200), GB_DEMAND, "oracle-nvl72", "mnnvl+roce"
    ),
    "oracle-mi300x": Case(oracle("BM.GPU.MI300X.8", AMD_GPUS, amd()), AMD, "oracle-roce-amd", "roce"),
    "azure-h100": Case(
        azure("Standard_ND96isr_H100_v5", GPUS | {"rdma/ib": 8}, nvidia()), RDMA_ONLY, "azure-infiniband", "infiniband"
    ),
    "azure-h100-shared": Case(
        azure("Standard_ND96isr_H100_v5", GPUS | {"rdma/shared_ib": 63}, nvidia()),
        NVIDIA,
        "azure-infiniband",
        "infiniband",
    ),
    "azure-mi300x": Case(
        azure("Standard_ND96isr_MI300X_v5", AMD_GPUS | {"rdma/ib": 8}, amd()), AMD, "azure-infiniband-amd", "infiniband"
    ),
    "nebius": Case(
        pair(nvidia("NVIDIA-H200") | IB | {"nebius.com/gpu": "true"}, GPUS), NVIDIA, "nebius-infiniband", "infiniband"
    ),
    "together": Case(
        pair(nvidia() | IB | {"node-role.together.ai/worker": "true"}, GPUS),
        NVIDIA,
        "together-infiniband",
        "infiniband",
    ),
    "together-by-one-label": Case(
        pair(nvidia() | {"node-role.together.ai/worker": "true"}, GPUS), NVIDIA, "tcp", "tcp"
    ),
    "instance-type-alone": Case(
        pair({TYPE: "BM.GPU.H100.8"}, {"nvidia.com/gpu": 2}), Demand("nvidia.com/gpu", 2), "tcp", "tcp"
    ),
    # AMD on premises
    "amd-verl-cluster": Case(pair(amd() | ROCE, AMD_GPUS | HCA), AMD, "amd-roce-mlx5", "roce"),
    "amd-mi250-ib-old-labels": Case(
        pair({"beta.amd.com/gpu.device-id.740c": "8", "beta.amd.com/gpu.vram.64G": "8"} | IB, AMD_GPUS | HCA),
        AMD,
        "amd-infiniband",
        "infiniband",
    ),
    "amd-mi355x-pollara": Case(
        pair(amd("AMD_Instinct_MI355X_OAM"), AMD_GPUS | {"amd.com/nic": 8}), AMD, "amd-roce-pollara", "roce"
    ),
    "amd-broadcom": Case(
        pair(amd() | {f"{NFD}/pci-0200_14e4.present": "true"}, AMD_GPUS | {"rdma/bnxt": 8}), AMD, "amd-roce", "roce"
    ),
    "amd-tcp": Case(pair(amd("AMD_Instinct_MI210"), AMD_GPUS), AMD, "tcp-amd", "tcp"),
    # CPUs, mixtures, contradictions, slices
    "cpu-only": Case(pair({}, {}), ON_CPU, "cpu-only", "tcp"),
    "cpu-job-on-gpu-nodes": Case(pair(nvidia() | IB, GPUS | HCA), ON_CPU, "cpu-only", "tcp"),
    "mixed-ib-and-tcp": Case(
        [node("a", nvidia() | IB, GPUS | HCA), node("b", nvidia(), GPUS)],
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
        warns=("do not agree",),
    ),
    "mixed-ib-and-tcp-rdma": Case(
        [node("a", nvidia() | IB, GPUS | HCA), node("b", nvidia(), GPUS)],
        RDMA_ONLY,
        "generic",
        "tcp",
        refused="MixedFabric",
        agree=False,
    ),
    "mixed-oracle-shapes": Case(
        [*oracle("BM.GPU.H100.8", GPUS, nvidia())[:1], *oracle("BM.GPU.B4.8", GPUS, nvidia("NVIDIA-A100"))[1:]],
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
    ),
    "mixed-products-same-settings": Case(
        [node("a", nvidia() | IB, GPUS | HCA), node("b", nvidia("NVIDIA-A100-SXM4-80GB") | IB, GPUS | HCA)],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("different GPUs",),
    ),
    "mixed-vendors": Case(
        [node("a", nvidia() | IB, GPUS | HCA), node("b", amd() | IB, AMD_GPUS | HCA)],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
    ),
    "contradictory-vendor": Case(
        pair(nvidia() | amd() | IB, GPUS | HCA), NVIDIA, "generic", "tcp", agree=False, warns=("contradict",)
    ),
    "contradictory-product": Case(
        aws("p5.48xlarge", 32, "NVIDIA-A100-SXM4-40GB"), RDMA_ONLY, "generic", "tcp", "ContradictoryLabels", agree=False
    ),
    "contradictory-link": Case(
        pair(nvidia() | COREWEAVE | {"backend.coreweave.cloud/flavor": "roce"} | IB, GPUS | {"rdma/ib": 1}),
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
        warns=("contradict",),
    ),
    "contradictory-cloud": Case(
        pair(nvidia() | {"cloud.google.com/gke-nodepool": "p", "eks.amazonaws.com/nodegroup": "g"}, GPUS),
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
    ),
    "mig": Case(
        pair(nvidia("NVIDIA-A100-SXM4-40GB") | {"nvidia.com/mig.strategy": "mixed"}, {"nvidia.com/mig-1g.5gb": 56}),
        Demand("nvidia.com/mig-1g.5gb", 2, 2),
        "tcp",
        "tcp",
        warns=("MIG 1g.5gb",),
    ),
    "time-slicing": Case(
        pair(
            nvidia(
                "NVIDIA-L4-SHARED",
                **{"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"},
            ),
            {"nvidia.com/gpu": 4},
        ),
        Demand("nvidia.com/gpu", 2, 2),
        "tcp",
        "tcp",
        warns=("time-slicing, 4 replicas",),
    ),
    # no candidates
    "empty": Case([], NVIDIA, "tcp", "none", warns=("no node exists",)),
    "empty-require-rdma": Case([], RDMA_ONLY, "tcp", "none", refused="RdmaNotFound"),
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
        refused="ResourceNotFound",
    ),
    "all-cordoned": Case(
        pair(nvidia() | IB, GPUS | HCA, unschedulable=True),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        refused="NoCandidate",
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
    "no-such-resource": Case(pair({}, {}), NVIDIA, "tcp", "none", refused="ResourceNotFound"),
    "more-than-any-node": Case(
        pair(nvidia(), GPUS), Demand("nvidia.com/gpu", 16, 1), "tcp", "none", refused="TooManyAccelerators"
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
        refused="TwoVendors",
    ),
    "hcas-match-nothing": Case(
        pair(nvidia() | COREWEAVE, GPUS | {"rdma/ib": 1}),
        Demand("nvidia.com/gpu", 8, 2, hcas=("mlx5_0", "mlx5_1")),
        "coreweave-infiniband",
        "infiniband",
        refused="HcaMatchesNothing",
    ),
    "user-disables-ib": Case(
        pair(nvidia() | IB, GPUS | HCA),
        Demand("nvidia.com/gpu", 8, 2, require="rdma", user_env=(("NCCL_IB_DISABLE", "1"),)),
        "onprem-infiniband",
        "infiniband",
        refused="RdmaDisabledByUser",
    ),
    "rocr-alone": Case(
        pair(amd() | ROCE, AMD_GPUS | HCA),
        Demand("amd.com/gpu", 8, 2, user_env=(("ROCR_VISIBLE_DEVICES", "0,1"),)),
        "amd-roce-mlx5",
        "roce",
        refused="DeviceVisibility",
    ),
    "unknown-profile": Case(
        pair(nvidia(), GPUS), Demand("nvidia.com/gpu", 8, 2, profile="warp"), "tcp", "tcp", refused="UnknownProfile"
    ),
    "profile-of-other-vendor": Case(
        pair(nvidia(), GPUS),
        Demand("nvidia.com/gpu", 8, 2, profile="amd-roce"),
        "amd-roce",
        "roce",
        refused="ProfileDoesNotFit",
    ),
    "attach-that-does-not-work": Case(
        pair(nvidia() | COREWEAVE, GPUS | {"rdma/ib": 1}),
        Demand("nvidia.com/gpu", 8, 2, attach="multus"),
        "coreweave-infiniband",
        "infiniband",
        refused="AttachNotPossible",
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
