"""The preflight checks: result, message and pods of each check for given measurements."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from preflight.measured import (
    DATA,
    EXPECTED,
    EXPECTED_GPUS,
    MLX5,
    NETWORK,
    NETWORK_GPUS,
    RDMA,
    SERVICES,
    SERVICES_GPUS,
    GiB,
    data_with,
    network_facts,
    network_with,
    service_facts,
    services_with,
)

from rlt_api.schema.model_schema import load_schema
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_pod.preflight.checks import (
    bucket_checks,
    collective_checks,
    data_checks,
    network_checks,
    service_checks,
)
from rlt_pod.preflight.expected import Expected
from rlt_pod.preflight.facts.all_reduce import Reduction, compute_bus_bandwidth
from rlt_pod.preflight.facts.bucket import BucketFacts
from rlt_pod.preflight.facts.chat_template import TemplateProblem
from rlt_pod.preflight.facts.connections import BrokenLink
from rlt_pod.preflight.facts.hub import HubProblem
from rlt_pod.preflight.facts.interfaces import Interface
from rlt_pod.preflight.facts.objects import ObjectProblem
from rlt_pod.preflight.facts.pairs import Pair
from rlt_pod.preflight.facts.service_facts import Device
from rlt_pod.preflight.facts.shared_folder import Folder
from rlt_pod.preflight.measure import Data, Network, Services
from rlt_pod.preflight.result import Result

CHECKS: dict[type[Any], Any] = {
    Network: [*network_checks.CHECKS, *collective_checks.CHECKS],
    Services: service_checks.CHECKS,
    Data: [*data_checks.CHECKS, *bucket_checks.CHECKS],
}

FULL = {"engine", "training-step", "peak-memory", "peak-host-memory", "checkpoint"}
"""The checks that level full adds."""


def check_all(measured: Any, expected: Expected = EXPECTED) -> dict[str, Result]:
    every = [check(expected, measured) for check, _ in CHECKS[type(measured)]]
    return {each.name: each for each in every if each is not None}


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (NETWORK, EXPECTED),
        (SERVICES, EXPECTED),
        (DATA, EXPECTED),
        (NETWORK_GPUS, EXPECTED_GPUS),
        (SERVICES_GPUS, EXPECTED_GPUS),
    ],
)
def test_all_checks_pass_for_healthy_pods(measured: Any, expected: Expected) -> None:
    every = check_all(measured, expected)
    assert {each.result for each in every.values()} == {"passed"}
    assert all(each.remedy is None for each in every.values())


@pytest.mark.parametrize(("joined", "result"), [(0, "failed"), (1, "passed"), (2, "passed"), (3, "failed")])
def test_a_group_with_a_minimum_may_lack_pods(joined: int, result: str) -> None:
    (group,) = EXPECTED.workers
    nodes = tuple(replace(SERVICES.nodes[0], pod=f"pod-{index}") for index in range(joined))
    found = check_all(replace(SERVICES, nodes=nodes), replace(EXPECTED, workers=[replace(group, min_replicas=1)]))
    assert (found["ray-nodes"].result, found["ray-nodes"].threshold) == (result, "1 node")
    if joined == 1:
        assert found["ray-nodes"].message == "1 of 2 workers have joined Ray with the resources of the spec."


DRIVERS = [
    ({"nvidia driver": "570.124.06", "nvidia-cuda-runtime": "13.0.96"}, "failed"),
    ({"nvidia driver": "580.65.06", "nvidia-cuda-runtime": "13.0.96"}, "passed"),
    ({"nvidia driver": "535.230.02", "nvidia-cuda-runtime-cu12": "12.8.90"}, "passed"),
    ({"nvidia driver": "570.124.06"}, None),
    ({"amdgpu driver": "6.12.12"}, None),
]
"""Versions in a pod, and the result of the driver check."""


@pytest.mark.parametrize(("versions", "expected"), DRIVERS)
def test_the_nvidia_driver_must_run_the_cuda_of_the_image(versions: dict[str, str], expected: str | None) -> None:
    """CUDA 13 needs R580, CUDA 12 R525. The head has no driver."""
    without_driver = {name: version for name, version in versions.items() if "driver" not in name}
    facts = (
        service_facts("head", versions=without_driver),
        service_facts("a", versions=versions),
        service_facts("b", versions=versions),
    )
    found = check_all(replace(SERVICES_GPUS, facts=facts), EXPECTED_GPUS).get("nvidia-driver")
    assert (found.result if found else None) == expected
    if found and expected == "failed":
        assert found.message == "The NVIDIA driver of a, b is 570.124.06; CUDA of the image needs 580 or newer."
        assert (found.pods, found.threshold) == (("a", "b"), "580")


ETH1 = Interface("eth1", ("192.168.1.2",), 1500)
NO_MODEL = ObjectProblem("s3://models/q: the bucket has no such objects.", "Correct spec.model.path.", True)
BUSY = ObjectProblem("s3://data/a: the server does not answer.", "Verify spec.storage.endpoint.", False)
PROBLEMS: dict[str, tuple[Any, str, str, str, tuple[str, ...]]] = {
    "a process that does not start": (
        replace(NETWORK, unanswered={"b": "no answer within 180 s"}, processes=1),
        *("ranks", "failed", "No answer from b: b: no answer within 180 s.", ("b",)),
    ),
    "workers that do not join Ray": (
        replace(NETWORK, processes=0, facts=NETWORK.facts[:1], skews={}, connections=0, reductions=()),
        *("ranks", "failed", "No worker has joined Ray.", ()),
    ),
    "a cluster without DNS": (
        network_with("b", head_error="Temporary failure in name resolution"),
        *("dns", "failed", "b cannot resolve sum-head-svc: b: Temporary failure in name resolution.", ("b",)),
    ),
    "a policy that blocks the head": (
        network_with("b", unreachable_ports={6379: "sum-head-svc does not answer within 5 s"}),
        *("head-ports", "failed", "b: port 6379: sum-head-svc does not answer within 5 s.", ("b",)),
    ),
    "a host name that does not resolve": (
        network_with("b", resolves=False),
        *("host-names", "warned", "The host name of b does not resolve", ("b",)),
    ),
    "an interface that does not exist": (
        network_with("b", selections={"NCCL_SOCKET_IFNAME": ("ens5", ())}),
        "interfaces",
        "failed",
        "b: NCCL_SOCKET_IFNAME=ens5 selects no interface with an address, and the pod's interface is eth0.",
        ("b",),
    ),
    "an interface of another network": (
        network_with("b", selections={"GLOO_SOCKET_IFNAME": ("eth1", (ETH1,))}),
        *("interfaces", "warned", "selects eth1, and the pod's address is on eth0.", ("b",)),
    ),
    "a port without its cable": (
        network_with("b", NETWORK_GPUS, rdma=replace(RDMA, ports=(MLX5, replace(MLX5, device="x", state="DOWN")))),
        *("rdma-links", "warned", "b: x:1 is DOWN.", ("b",)),
    ),
    "an MTU of one node": (
        network_with("b", interface=Interface("eth0", ("10.0.0.98",), 9000)),
        *("mtu", "warned", "The MTU differs: 1500 in a, head; 9000 in b.", ("b",)),
    ),
    "a variable of one pod": (
        replace(NETWORK, facts=(*NETWORK.facts, network_facts("c", digests={"NCCL_DEBUG": "cd"}))),
        *("environment", "warned", "NCCL_DEBUG differ between workers; c have other values", ("c",)),
    ),
    "a clock that is wrong": (
        replace(NETWORK, skews={"a": 0.0, "b": -31.5}),
        *("clocks", "warned", "The clock of b differs from the head's by 31.5 s.", ("b",)),
    ),
    "a firewall": (
        replace(NETWORK, broken=(BrokenLink("a", "b", "10.0.0.2 does not answer within 5 s"),)),
        *("connections", "failed", "a -> b: 10.0.0.2 does not answer within 5 s", ("b",)),
    ),
    "a rank that does not join the all-reduce": (
        replace(NETWORK, reductions=(NETWORK.reductions[0], Reduction("b", error="no answer within 60 s"))),
        *("all-reduce", "failed", "(gloo, 2 ranks, interfaces eth0): b: no answer within 60 s.", ("b",)),
    ),
    "an unresponsive rank that others wait for": (
        replace(
            NETWORK,
            reductions=(
                Reduction("a", error="waited"),
                Reduction("b", error="no answer within 120 s", is_unresponsive=True),
            ),
        ),
        *("all-reduce", "failed", "interfaces eth0): b: no answer within 120 s.", ("b",)),
    ),
    "a wrong sum": (
        replace(NETWORK, reductions=(NETWORK.reductions[0], Reduction("b", wrong=(1024,), seconds=1, bytes=1024))),
        *("all-reduce", "failed", "b computed a wrong sum of 1024 bytes", ("b",)),
    ),
    "a worker that has not joined Ray": (
        replace(SERVICES, nodes=SERVICES.nodes[:1]),
        *("ray-nodes", "failed", "1 of 2 workers have not joined Ray.", ()),
    ),
    "a worker with fewer CPUs": (
        replace(SERVICES, nodes=(SERVICES.nodes[0], replace(SERVICES.nodes[1], cpus=1))),
        *("ray-nodes", "failed", "Ray has 1 x 1 CPUs and 1 x 4 CPUs, but the spec gives 2 x 4 CPUs.", ("b",)),
    ),
    "a pod whose driver hangs": (
        replace(SERVICES, unanswered={"b": "no answer within 60 s"}),
        *("pods", "failed", "No answer from b: b: no answer within 60 s.", ("b",)),
    ),
    "a pod whose volume hangs": (
        replace(DATA, unanswered={"b": "no answer within 60 s"}),
        *("pods", "failed", "No answer from b: b: no answer within 60 s.", ("b",)),
    ),
    "/dev/shm that is too small": (
        services_with("b", shared_memory=2**26),
        *("shared-memory", "failed", "/dev/shm of b has 0.1Gi, but the job requests 2.0Gi.", ("b",)),
    ),
    "few open files": (
        services_with("b", open_files=1024),
        *("limits", "warned", "b has low limits.", ("b",)),
    ),
    "a GPU with memory errors": (
        services_with("b", SERVICES_GPUS, gpu_problems=("GPU 3 has 2 uncorrectable memory errors",)),
        *("gpu-health", "failed", "b: GPU 3 has 2 uncorrectable memory errors.", ("b",)),
    ),
    "a library of another version": (
        replace(SERVICES, facts=(*SERVICES.facts, service_facts("c", versions={"torch": "2.12.0"}))),
        *("versions", "failed", "torch is 2.12.0 in c and 2.13.0 in a, b, head.", ("c",)),
    ),
    "an accelerator that torch does not detect": (
        replace(SERVICES_GPUS, devices=(SERVICES_GPUS.devices[0], Device("b", 0))),
        *("accelerators", "failed", "torch sees 0 accelerators in a process of b, not 1.", ("b",)),
    ),
    "an accelerator that two processes share": (
        replace(SERVICES_GPUS, devices=(SERVICES_GPUS.devices[0],) * 2),
        *("accelerators", "failed", "Two processes of a have the same accelerator.", ("a",)),
    ),
    "an accelerator that other processes use": (
        replace(SERVICES_GPUS, devices=(SERVICES_GPUS.devices[0], Device("b", 1, "H100", "u", 40 * GiB, 80 * GiB))),
        *("accelerators", "failed", "use an accelerator of b: 40.0Gi of 80.0Gi are in use.", ("b",)),
    ),
    "an accelerator with less memory than the job is validated for": (
        replace(SERVICES_GPUS, devices=(SERVICES_GPUS.devices[0], Device("b", 1, "H100", "u", 40 * GiB, 40 * GiB))),
        "accelerators",
        "failed",
        "An accelerator of b has 40.0Gi, and the job is validated for 80.0Gi.",
        ("b",),
    ),
    "an accelerator without bfloat16": (
        replace(
            SERVICES_GPUS, devices=(replace(SERVICES_GPUS.devices[0], capability=(7, 5)), SERVICES_GPUS.devices[1])
        ),
        *("data-type", "failed", "H100 of a does not support bfloat16, which the engine would reject.", ("a",)),
    ),
    "accelerators of two kinds": (
        replace(SERVICES_GPUS, devices=(SERVICES_GPUS.devices[0], Device("b", 1, "A100", "u", 80 * GiB, 80 * GiB))),
        *("accelerators", "warned", "of several kinds: A100, H100", ()),
    ),
    "a volume that cannot be written": (
        replace(DATA, folders=(*DATA.folders, Folder("c", "Permission denied"))),
        *("run-directory", "failed", "c cannot write /runs/sum: Permission denied.", ("c",)),
    ),
    "a volume that is not shared": (
        replace(
            DATA,
            folders=(
                *(replace(folder, unseen=("c",)) for folder in DATA.folders),
                Folder("c", None, ("a", "b", "head"), 100 * GiB),
            ),
        ),
        *("run-directory", "failed", "Other pods do not see the files of c in /runs/sum.", ("c",)),
    ),
    "a volume that is nearly full": (
        replace(DATA, folders=(*DATA.folders, Folder("c", None, (), 19 * GiB))),
        "space",
        "warned",
        "/runs/sum has 19.0Gi left; 3 checkpoints with the exported model need about 20.0Gi.",
        (),
    ),
    "a cache of another user": (
        data_with("b", unwritable={"HF_HOME": "/mnt/hf: Permission denied"}),
        *("caches", "failed", "b: HF_HOME=/mnt/hf: Permission denied.", ("b",)),
    ),
    "a user without a name": (
        data_with("b", has_user=False),
        *("caches", "failed", "The user ID of b has no name", ("b",)),
    ),
    "a model that one pod does not have": (
        data_with("b", unreadable={"/models/q": "No such file or directory"}),
        *("files", "failed", "b cannot read /models/q: No such file or directory.", ("b",)),
    ),
    "prompts that the head does not have": (
        data_with("head", unreadable={"/data/x.parquet": "Permission denied"}),
        *("files", "failed", "head cannot read /data/x.parquet: Permission denied.", ("head",)),
    ),
    "prompts that a worker does not have": (
        data_with("b", unreadable={"/data/x.parquet": "No such file or directory"}),
        *("files", "warned", "b cannot read /data/x.parquet", ("b",)),
    ),
    "a model that the hub does not give": (
        replace(DATA, hub_problems=(HubProblem("org/a", "it does not exist", True), HubProblem("b", "timeout", False))),
        *("hub", "failed", "org/a: it does not exist.", ()),
    ),
    "a model that the bucket does not have": (
        replace(DATA, object_problems=(NO_MODEL, BUSY)),
        *("objects", "failed", "s3://models/q: the bucket has no such objects.", ()),
    ),
    "a bucket that does not respond": (
        replace(DATA, object_problems=(BUSY,)),
        *("objects", "warned", "s3://data/a: the server does not answer.", ()),
    ),
    "a hub that does not respond": (
        replace(DATA, hub_problems=(HubProblem("org/a", "the hub cannot be reached: timed out", False),)),
        *("hub", "warned", "org/a: the hub cannot be reached: timed out.", ()),
    ),
    "a pod that cannot write the bucket": (
        replace(DATA, buckets=(BucketFacts("head", None), BucketFacts("b", "AccessDenied", "Give the right."))),
        *("bucket", "failed", "b: AccessDenied.", ("b",)),
    ),
    "a clock that is not the server's": (
        replace(DATA, buckets=(BucketFacts("head", None, skew=1.0), BucketFacts("a", None, skew=-400.0))),
        *("bucket", "warned", "The clock of a differs", ("a",)),
    ),
    "a tokenizer without chat template": (
        replace(DATA, has_chat_template=False),
        *("chat-template", "warned", "The tokenizer in /models/q has no chat template", ()),
    ),
    "a chat template that cannot be parsed": (
        replace(DATA, template_problem=TemplateProblem(3, "{% fi %}", "unknown tag 'fi'")),
        *("chat-template", "failed", "in /models/q is not valid: line 3, '{% fi %}': unknown tag 'fi'.", ()),
    ),
    "a chat template that rejects a user": (
        replace(DATA, template_problem=TemplateProblem(1, "", "no", is_syntax=False)),
        *("chat-template", "warned", "does not render a message of a user: line 1", ()),
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem_is_reported_with_its_pods_and_a_remedy(problem: str) -> None:
    measured, name, result, message, pods = PROBLEMS[problem]
    on_gpus = measured.facts[1:] and "H100" in str(measured)
    every = check_all(measured, EXPECTED_GPUS if on_gpus else EXPECTED)
    check = every.pop(name)
    assert (check.result, check.pods) == (result, pods)
    assert message in check.message
    assert check.remedy
    assert {each.result for each in every.values()} == {"passed"}, "other checks pass"


RDMA_PROBLEMS = [
    (replace(RDMA, ports=(replace(MLX5, state="DOWN"),)), "no active port (mlx5_0:1 DOWN)"),
    (replace(RDMA, ports=()), "no active port (no device)"),
    (replace(RDMA, ports=(), lacks_device_files=True), "the pod has no /dev/infiniband"),
    (replace(RDMA, gid_index=2), "mlx5_0 has no GID with the index 2"),
    (replace(RDMA, gid_index=9), "mlx5_0 has no GID with the index 9"),
    (replace(RDMA, can_lock_memory=False), "the limit of locked memory (ulimit -l) is not unlimited"),
]


@pytest.mark.parametrize(("rdma", "message"), RDMA_PROBLEMS)
def test_rdma_that_does_not_work_fails_only_if_it_is_required(rdma: Any, message: str) -> None:
    broken = network_with("b", NETWORK_GPUS, rdma=rdma)
    assert check_all(broken)["rdma-links"].result == "warned"
    check = check_all(broken, replace(EXPECTED, require_rdma=True))["rdma-links"]
    assert (check.result, check.pods) == ("failed", ("b",))
    assert message in check.message


def test_a_gid_of_the_index_passes() -> None:
    found = check_all(network_with("b", NETWORK_GPUS, rdma=replace(RDMA, gid_index=3)))["rdma-links"]
    assert (found.result, found.value) == ("passed", "2 of 2 ports active, InfiniBand")


def test_tcp_fails_only_if_rdma_is_required() -> None:
    slow = replace(
        NETWORK_GPUS, reductions=(*NETWORK_GPUS.reductions, Reduction("c", seconds=1, bytes=1, transports=("Socket",)))
    )
    assert check_all(slow)["transport"].result == "passed"
    required = check_all(slow, replace(EXPECTED, require_rdma=True))["transport"]
    assert (required.result, required.pods, required.value) == ("failed", ("c",), "IB, Socket")


@pytest.mark.parametrize(("minimum", "result"), [(None, "warned"), (30e9, "failed")])
def test_a_slow_all_reduce_names_the_slow_pod(minimum: float | None, result: str) -> None:
    """Over RDMA, half of the ports' rate (50 GB/s) is expected. A minimum of the job is binding."""
    pairs = (Pair(("a", "b"), 1e9), Pair(("a", "c"), 40e9), Pair(("b", "c"), 1.2e9))
    slow = replace(
        NETWORK_GPUS,
        facts=(*NETWORK_GPUS.facts, network_facts("c", rdma=RDMA)),
        reductions=tuple(Reduction(pod, seconds=0.3, bytes=2**28, transports=("IB",)) for pod in "abc"),
        pairs=pairs,
    )
    check = check_all(slow, replace(EXPECTED, min_bus_bandwidth=minimum))["all-reduce"]
    assert (check.result, check.pods, check.value) == (result, ("b",), "1.19 GB/s")
    assert check.threshold == ("25.00 GB/s" if minimum is None else "30.00 GB/s")
    assert "b is slow with every other pod" in check.message
    alike = replace(slow, pairs=tuple(replace(pair, bandwidth=2e9) for pair in pairs))
    assert "no pod is slower than the others" in check_all(alike)["all-reduce"].message


def test_tcp_has_no_minimum_bandwidth() -> None:
    tcp = tuple(replace(each, transports=("Socket",), seconds=9.0) for each in NETWORK_GPUS.reductions)
    assert check_all(replace(NETWORK_GPUS, reductions=tcp))["all-reduce"].threshold is None


def test_separate_run_directories_pass_without_shared_storage() -> None:
    separate = replace(DATA, folders=tuple(replace(folder, unseen=("x",)) for folder in DATA.folders))
    assert check_all(separate, replace(EXPECTED, shared_storage=False))["run-directory"].result == "passed"


def test_an_image_without_torch_is_checked_without_collectives_and_devices() -> None:
    assert not {"all-reduce", "transport"} & check_all(replace(NETWORK, reductions=())).keys()
    assert "accelerators" not in check_all(replace(SERVICES_GPUS, devices=()), EXPECTED_GPUS)


def test_a_message_names_few_pods_and_the_check_lists_all() -> None:
    pods = tuple(service_facts(f"p{number}", shared_memory=0) for number in range(9))
    check = check_all(replace(SERVICES, facts=(*SERVICES.facts, *pods)))["shared-memory"]
    assert "p0, p1, p2 and 6 more" in check.message
    assert len(check.pods) == 9


def test_a_usable_bucket_has_the_speed_of_the_slowest_pod() -> None:
    head, *others = DATA.buckets
    check = check_all(replace(DATA, buckets=(replace(head, speed=0.31), *others)))["bucket"]
    assert (check.result, check.message.rpartition(". ")[2]) == (
        "passed",
        "The slowest upload, of head, had 0.31 MB/s.",
    )
    unknown = tuple(replace(each, speed=None) for each in DATA.buckets)
    assert "MB/s" not in check_all(replace(DATA, buckets=unknown))["bucket"].message


def test_bus_bandwidth_is_computed_as_in_nccl_tests() -> None:
    """doc/PERFORMANCE.md: for an all-reduce, algbw times 2 (n - 1) / n."""
    assert compute_bus_bandwidth(8 * 10**9, 1.0, ranks=8) == pytest.approx(8e9 * 7 / 4)
    assert compute_bus_bandwidth(10**9, 0.5, ranks=2) == pytest.approx(2e9)


def test_every_check_is_documented() -> None:
    document = (Path(__file__).parents[3] / "docs/preflight.md").read_text()
    written = set(re.findall(r"^\| `([a-z-]+)` \|", document, re.MULTILINE))
    selected = network_with("b", NETWORK_GPUS, selections={"GLOO_SOCKET_IFNAME": ("eth0", (ETH1,))})
    checks = {name for measured in (selected, SERVICES_GPUS, DATA) for name in check_all(measured, EXPECTED_GPUS)}
    assert written == checks | FULL | {"pods", "time-limit"}


def test_the_status_holds_all_checks_of_a_preflight() -> None:
    """A check of the last stage is cut from the status otherwise, also one that failed. A job with the check objects
    trains nothing, and does not have the check of a checkpoint."""
    limit = load_schema(RLTrainingJobStatus)["properties"]["preflight"]["maxItems"]
    assert sum(map(len, CHECKS.values())) + len(FULL - {"checkpoint"}) <= limit
