"""Measurements of healthy clusters, which the tests change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlt_pod.preflight.expected import Bucket, Expected, Group, ObjectPath, Repository
from rlt_pod.preflight.facts.all_reduce import Reduction
from rlt_pod.preflight.facts.bucket import BucketFacts
from rlt_pod.preflight.facts.data_facts import DataFacts
from rlt_pod.preflight.facts.interfaces import Interface
from rlt_pod.preflight.facts.network_facts import NetworkFacts
from rlt_pod.preflight.facts.rdma import Port, Rdma
from rlt_pod.preflight.facts.service_facts import Device, ServiceFacts
from rlt_pod.preflight.facts.shared_folder import Folder
from rlt_pod.preflight.measure import Data, Network, Services
from rlt_pod.preflight.members import RayNode

GiB = 2**30
PODS = ("a", "b")
NO_RDMA = Rdma((), False, True, None)
GIDS = ("fe80:0000:0000:0000:0000:0000:0000:0001", "fe80:0000:0000:0000:0000:0000:0000:0002", "", "::ffff:10.0.0.1")
MLX5 = Port("mlx5_0", 1, "ACTIVE", "InfiniBand", 400.0, "ib0", GIDS)
RDMA = Rdma((MLX5,), False, True, None)

EXPECTED = Expected(
    level="basic",
    head=Group("headgroup", 1, 0, 0, GiB),
    workers=[Group("workers", 2, 4, 0, 2 * GiB)],
    head_service="sum-head-svc",
    run_directory="/runs/sum",
    shared_storage=True,
    require_rdma=False,
    models=["/models/q"],
    data_files=["/data/x.parquet"],
    repositories=[Repository("org/a", "model", None)],
    chat_template_of="/models/q",
    checkpoint_bytes=6 * GiB,
    export_bytes=2 * GiB,
    checkpoints=3,
    bucket=Bucket("s3://runs/sum", ["rlt-trainer", "bucket"], ["workers"]),
    objects=[ObjectPath("spec.model.path", "s3://models/q", "model")],
)
EXPECTED_GPUS = replace(EXPECTED, workers=[Group("workers", 2, 4, 1, 2 * GiB, 80 * GiB)], bfloat16=True)


def network_facts(pod: str, **changes: Any) -> NetworkFacts:
    """The network of a pod. Its address ends in the code of its name."""
    address = f"10.0.0.{ord(pod[0])}"
    facts = NetworkFacts(
        pod=pod,
        is_head=pod == "head",
        address=address,
        interface=Interface("eth0", (address,), 1500),
        resolves=True,
        head_error=None,
        unreachable_ports={},
        selections={},
        rdma=NO_RDMA,
        digests={"NCCL_DEBUG": "ab"},
    )
    return replace(facts, **changes)


def service_facts(pod: str, **changes: Any) -> ServiceFacts:
    """The services of a pod."""
    facts = ServiceFacts(
        pod=pod,
        group="headgroup" if pod == "head" else "workers",
        is_head=pod == "head",
        shared_memory=4 * GiB,
        open_files=2**20,
        processes=None,
        versions={"torch": "2.13.0"},
        gpu_problems=None,
    )
    return replace(facts, **changes)


def data_facts(pod: str, **changes: Any) -> DataFacts:
    """The data of a pod."""
    return replace(DataFacts(pod, pod == "head", {}, {}, True), **changes)


NETWORK = Network(
    facts=(network_facts("head"), *map(network_facts, PODS)),
    processes=2,
    unanswered={},
    skews={"a": 0.01, "b": -0.2},
    connections=2,
    reductions=tuple(Reduction(pod, seconds=0.1, bytes=2**24) for pod in PODS),
)
NETWORK_GPUS = replace(
    NETWORK,
    facts=(network_facts("head"), *(network_facts(pod, rdma=RDMA) for pod in PODS)),
    backend="nccl",
    reductions=tuple(Reduction(pod, seconds=0.01, bytes=2**28, transports=("IB",)) for pod in PODS),
)
SERVICES = Services(
    facts=(service_facts("head"), *map(service_facts, PODS)),
    devices=tuple(Device(pod, 0) for pod in PODS),
    nodes=tuple(RayNode(f"id-{pod}", pod, "10.0.0.1", 4, 0) for pod in PODS),
)
CUDA = {"torch": "2.13.0", "nvidia driver": "580.65.06", "nvidia-cuda-runtime": "13.0.96"}
SERVICES_GPUS = Services(
    facts=(service_facts("head"), *(service_facts(pod, versions=CUDA, gpu_problems=()) for pod in PODS)),
    devices=tuple(Device(pod, 1, "H100", f"uuid-{pod}", 79 * GiB, 80 * GiB, (9, 0)) for pod in PODS),
    nodes=tuple(replace(node, devices=1) for node in SERVICES.nodes),
)
DATA = Data(
    facts=(data_facts("head"), *map(data_facts, PODS)),
    folders=tuple(Folder(pod, None, (), 100 * GiB) for pod in ("head", *PODS)),
    has_chat_template=True,
    buckets=tuple(BucketFacts(pod, None, skew=0.4, speed=120.0) for pod in ("head", *PODS)),
)


def network_with(pod: str, base: Network = NETWORK, **changes: Any) -> Network:
    """The network with one changed pod."""
    return replace(base, facts=tuple(replace(each, **changes) if each.pod == pod else each for each in base.facts))


def services_with(pod: str, base: Services = SERVICES, **changes: Any) -> Services:
    """The services with one changed pod."""
    return replace(base, facts=tuple(replace(each, **changes) if each.pod == pod else each for each in base.facts))


def data_with(pod: str, **changes: Any) -> Data:
    """The data with one changed pod."""
    return replace(DATA, facts=tuple(replace(each, **changes) if each.pod == pod else each for each in DATA.facts))
