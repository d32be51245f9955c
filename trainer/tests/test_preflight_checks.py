"""The preflight checks: result, message and pods of each check for given measurements."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlt_api.status import PreflightCheck
from rlt_api.training_config import Preflight, TrainingConfig
from rlt_trainer.preflight import checks, network_checks
from rlt_trainer.preflight.measurements import BrokenLink, Device, Folder, Measurements, Pod, Reduction
from rlt_trainer.preflight.network_checks import compute_bus_bandwidth

MakeConfig = Callable[..., TrainingConfig]
GiB = 2**30
EXPECTED = Preflight(head_shared_memory=GiB, shared_memory=2 * GiB, shared_storage=True, require_rdma=False)


def pod(name: str, role: Any = "train", **changes: Any) -> Pod:
    known = {"interface": "eth0", "resolves": True, "shared_memory": 4 * GiB, "versions": {"torch": "2.13.0"}}
    return Pod(name=name, role=role, **{**known, **changes})


HEALTHY = Measurements(
    pods=(pod("head", None), pod("a"), pod("b")),
    devices=(Device("a", 0), Device("b", 0)),
    unanswered={},
    folders=tuple(Folder(name, None, (), 100 * GiB) for name in ("head", "a", "b")),
    skews={"a": 0.01, "b": -0.2},
    connections=2,
    reductions=tuple(Reduction(name, seconds=0.1, bytes=2**24) for name in "ab"),
)
CUDA = {"torch": "2.13.0", "nvidia driver": "580.65.06", "nvidia-cuda-runtime": "13.0.96"}
ON_GPUS = replace(
    HEALTHY,
    pods=(pod("head", None), pod("a", versions=CUDA), pod("b", versions=CUDA)),
    devices=tuple(Device(name, 1, "H100", f"uuid-{name}", 79 * GiB, 80 * GiB) for name in "ab"),
    backend="nccl",
    reductions=tuple(Reduction(name, seconds=0.1, bytes=2**28, transports=("IB",)) for name in "ab"),
)


def with_pod(changed: Pod, measured: Measurements = HEALTHY) -> Measurements:
    return replace(measured, pods=tuple(changed if each.name == changed.name else each for each in measured.pods))


def check_all(
    config: TrainingConfig, measured: Measurements, expected: Preflight = EXPECTED
) -> dict[str, PreflightCheck]:
    every = [check(config, expected, measured) for check in [*checks.CHECKS, *network_checks.CHECKS]]
    return {each.name: each for each in every if each is not None}


@pytest.mark.parametrize(("measured", "devices"), [(HEALTHY, 0), (ON_GPUS, 1)])
def test_all_checks_pass_for_healthy_pods(make_config: MakeConfig, measured: Measurements, devices: int) -> None:
    every = check_all(make_config(devicesPerWorker=devices), measured)
    assert {each.result for each in every.values()} == {"passed"}
    assert ("accelerators" in every, "transport" in every) == (devices > 0, devices > 0)


DRIVERS = [
    ({"nvidia driver": "570.124.06", "nvidia-cuda-runtime": "13.0.96"}, "failed"),
    ({"nvidia driver": "580.65.06", "nvidia-cuda-runtime": "13.0.96"}, "passed"),
    ({"nvidia driver": "535.230.02", "nvidia-cuda-runtime-cu12": "12.8.90"}, "passed"),
    ({"nvidia driver": "570.124.06"}, None),
    ({"amdgpu driver": "6.12.12"}, None),
]
"""Versions in a pod, and the result of the check of the driver."""


@pytest.mark.parametrize(("versions", "expected"), DRIVERS)
def test_the_nvidia_driver_must_run_the_cuda_of_the_image(
    make_config: MakeConfig, versions: dict[str, str], expected: str | None
) -> None:
    """CUDA 13 needs R580, CUDA 12 R525. The head has no driver."""
    without_driver = {name: version for name, version in versions.items() if "driver" not in name}
    pods = (pod("head", None, versions=without_driver), pod("a", versions=versions), pod("b", versions=versions))
    found = check_all(make_config(devicesPerWorker=1), replace(ON_GPUS, pods=pods)).get("nvidia-driver")
    assert (found.result if found else None) == expected
    if found and expected == "failed":
        assert found.message == "The NVIDIA driver of a, b is 570.124.06; CUDA of the image needs 580 or newer."
        assert found.pods == ["a", "b"]


PROBLEMS: dict[str, tuple[Measurements, str, str, str, list[str]]] = {
    "a process that does not start": (
        replace(HEALTHY, unanswered={"b": "no answer within 180 s"}, devices=HEALTHY.devices[:1]),
        *("ranks", "failed", "No answer from b: b: no answer within 180 s.", ["b"]),
    ),
    "/dev/shm that is too small": (
        with_pod(pod("b", shared_memory=2**26)),
        *("shared-memory", "failed", "/dev/shm of b has 0.1Gi, but the job requests 2.0Gi.", ["b"]),
    ),
    "a library of another version": (
        replace(HEALTHY, pods=(*HEALTHY.pods, pod("c", versions={"torch": "2.12.0"}))),
        *("versions", "failed", "torch is 2.12.0 in c and 2.13.0 in a, b, head.", ["c"]),
    ),
    "a volume that cannot be written": (
        replace(HEALTHY, folders=(*HEALTHY.folders, Folder("c", "Permission denied"))),
        *("run-directory", "failed", "c cannot write DIRECTORY: Permission denied.", ["c"]),
    ),
    "a volume that is not shared": (
        replace(
            HEALTHY,
            folders=(
                *(replace(folder, unseen=("c",)) for folder in HEALTHY.folders),
                Folder("c", None, ("a", "b", "head"), GiB),
            ),
        ),
        *("run-directory", "failed", "Other pods do not see the files of c in DIRECTORY.", ["c"]),
    ),
    "a volume that is nearly full": (
        replace(HEALTHY, folders=(*HEALTHY.folders, Folder("c", None, (), 1000))),
        *("run-directory", "warned", "DIRECTORY has 0.0Gi left", []),
    ),
    "a model that one pod does not have": (
        with_pod(pod("b", unreadable={"/models/q": "No such file or directory"})),
        *("files", "failed", "b cannot read /models/q: No such file or directory.", ["b"]),
    ),
    "prompts that the head does not have": (
        with_pod(pod("head", None, unreadable={"/data/x.parquet": "Permission denied"})),
        *("files", "failed", "head cannot read /data/x.parquet: Permission denied.", ["head"]),
    ),
    "prompts that a worker does not have": (
        with_pod(pod("b", unreadable={"/data/x.parquet": "No such file or directory"})),
        *("files", "warned", "b cannot read /data/x.parquet", ["b"]),
    ),
    "a tokenizer without chat template": (
        replace(HEALTHY, has_chat_template=False),
        *("chat-template", "warned", "The tokenizer in /models/q has no chat template", []),
    ),
    "a host name that does not resolve": (
        with_pod(pod("b", resolves=False)),
        *("host-names", "warned", "The host name of b does not resolve", ["b"]),
    ),
    "a clock that is wrong": (
        replace(HEALTHY, skews={"a": 0.0, "b": -31.5}),
        *("clocks", "warned", "The clock of b differs from the head's by 31.5 s.", ["b"]),
    ),
    "a firewall": (
        replace(HEALTHY, broken=(BrokenLink("a", "b", "10.0.0.2 does not answer within 5 s"),)),
        *("connections", "failed", "a -> b: 10.0.0.2 does not answer within 5 s", ["b"]),
    ),
    "a rank that does not join the all-reduce": (
        replace(HEALTHY, reductions=(HEALTHY.reductions[0], Reduction("b", error="no answer within 60 s"))),
        *("all-reduce", "failed", "(gloo, 2 ranks, interfaces eth0): b: no answer within 60 s.", ["b"]),
    ),
    "an unresponsive rank that others wait for": (
        replace(
            HEALTHY,
            reductions=(
                Reduction("a", error="waited"),
                Reduction("b", error="no answer within 120 s", is_unresponsive=True),
            ),
        ),
        *("all-reduce", "failed", "interfaces eth0): b: no answer within 120 s.", ["b"]),
    ),
    "a wrong sum": (
        replace(HEALTHY, reductions=(HEALTHY.reductions[0], Reduction("b", wrong=(1024,), seconds=1, bytes=1024))),
        *("all-reduce", "failed", "b computed a wrong sum of 1024 bytes", ["b"]),
    ),
    "an accelerator that torch does not see": (
        replace(ON_GPUS, devices=(ON_GPUS.devices[0], Device("b", 0))),
        *("accelerators", "failed", "torch sees 0 accelerators in a process of b, not 1.", ["b"]),
    ),
    "an accelerator that two processes share": (
        replace(ON_GPUS, devices=(ON_GPUS.devices[0],) * 2),
        *("accelerators", "failed", "Two processes of a have the same accelerator.", ["a"]),
    ),
    "an accelerator that other processes use": (
        replace(ON_GPUS, devices=(ON_GPUS.devices[0], Device("b", 1, "H100", "uuid-b", 40 * GiB, 80 * GiB))),
        *("accelerators", "failed", "use an accelerator of b: 40.0Gi of 80.0Gi are in use.", ["b"]),
    ),
    "accelerators of two kinds": (
        replace(ON_GPUS, devices=(ON_GPUS.devices[0], Device("b", 1, "A100", "uuid-b", 80 * GiB, 80 * GiB))),
        *("accelerators", "warned", "of several kinds: A100, H100", []),
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem_is_reported_with_its_pods_and_a_remedy(make_config: MakeConfig, problem: str) -> None:
    measured, name, result, message, pods = PROBLEMS[problem]
    changes = {"devicesPerWorker": 1} if measured.backend == "nccl" else {}
    config = make_config(model={"fromSeed": None, "path": "/models/q"}, **changes)
    every = check_all(config, measured)
    check = every.pop(name)
    assert (check.result, check.pods) == (result, pods)
    assert message.replace("DIRECTORY", config.run_directory) in check.message
    assert check.remedy
    assert {each.result for each in every.values()} == {"passed"}, "other checks pass"


def test_tcp_fails_only_if_rdma_is_required(make_config: MakeConfig) -> None:
    config = make_config(devicesPerWorker=1)
    slow = replace(
        ON_GPUS, reductions=(*ON_GPUS.reductions, Reduction("c", seconds=1, bytes=1, transports=("Socket",)))
    )
    assert check_all(config, slow)["transport"].result == "passed"
    required = check_all(config, slow, EXPECTED.model_copy(update={"require_rdma": True}))["transport"]
    assert (required.result, required.pods, required.value) == ("failed", ["c"], "IB, Socket")


def test_separate_run_directories_pass_without_shared_storage(make_config: MakeConfig) -> None:
    separate = replace(HEALTHY, folders=tuple(replace(folder, unseen=("x",)) for folder in HEALTHY.folders))
    expected = EXPECTED.model_copy(update={"shared_storage": False})
    assert check_all(make_config(), separate, expected)["run-directory"].result == "passed"


def test_a_chat_template_in_the_job_is_sufficient(make_config: MakeConfig) -> None:
    config = make_config(data={"chatTemplate": "{{ messages }}"})
    assert "chat-template" not in check_all(config, replace(HEALTHY, has_chat_template=False))


def test_a_message_names_few_pods_and_the_check_lists_all(make_config: MakeConfig) -> None:
    pods = tuple(pod(f"p{number}", shared_memory=0) for number in range(9))
    check = check_all(make_config(), replace(HEALTHY, pods=(*HEALTHY.pods, *pods)))["shared-memory"]
    assert "p0, p1, p2 and 6 more" in check.message
    assert len(check.pods) == 9


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """doc/PERFORMANCE.md: for an all-reduce, algbw times 2 (n - 1) / n."""
    assert compute_bus_bandwidth(8 * 10**9, 1.0, ranks=8) == pytest.approx(8e9 * 7 / 4)
    assert compute_bus_bandwidth(10**9, 0.5, ranks=2) == pytest.approx(2e9)


def test_every_check_is_documented(make_config: MakeConfig) -> None:
    document = (Path(__file__).parents[2] / "docs/preflight.md").read_text()
    written = set(re.findall(r"^\| `([a-z-]+)` \|", document, re.MULTILINE))
    config = make_config(model={"fromSeed": None, "path": "/models/q"}, devicesPerWorker=1)
    assert written == {*check_all(config, replace(ON_GPUS, has_chat_template=True)), "time-limit"}
