"""The checks before a training: what each finds in what was measured, what it says, and whom it names."""

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
from rlt_trainer.preflight.bandwidth import bus_bandwidth
from rlt_trainer.preflight.measured import BrokenLink, Device, Folder, Measured, Pod, Reduction

MakeConfig = Callable[..., TrainingConfig]
GiB = 2**30
EXPECTED = Preflight(head_shared_memory=GiB, shared_memory=2 * GiB, shared_storage=True, require_rdma=False)


def pod(name: str, role: Any = "train", **changes: Any) -> Pod:
    known = {"interface": "eth0", "resolves": True, "shared_memory": 4 * GiB, "versions": {"torch": "2.13.0"}}
    return Pod(name=name, role=role, **{**known, **changes})


WELL = Measured(
    pods=(pod("head", None), pod("a"), pod("b")),
    devices=(Device("a", 0), Device("b", 0)),
    silent={},
    folders=tuple(Folder(name, None, (), 100 * GiB) for name in ("head", "a", "b")),
    skews={"a": 0.01, "b": -0.2},
    connections=2,
    reductions=tuple(Reduction(name, seconds=0.1, bytes=2**24) for name in "ab"),
)
ON_GPUS = replace(
    WELL,
    devices=tuple(Device(name, 1, "H100", f"uuid-{name}", 79 * GiB, 80 * GiB) for name in "ab"),
    backend="nccl",
    reductions=tuple(Reduction(name, seconds=0.1, bytes=2**28, transports=("IB",)) for name in "ab"),
)


def with_pod(changed: Pod, measured: Measured = WELL) -> Measured:
    return replace(measured, pods=tuple(changed if each.name == changed.name else each for each in measured.pods))


def found(config: TrainingConfig, measured: Measured, expected: Preflight = EXPECTED) -> dict[str, PreflightCheck]:
    every = [check(config, expected, measured) for check in [*checks.CHECKS, *network_checks.CHECKS]]
    return {each.name: each for each in every if each is not None}


@pytest.mark.parametrize(("measured", "devices"), [(WELL, 0), (ON_GPUS, 1)])
def test_nothing_is_said_of_pods_that_are_well(make_config: MakeConfig, measured: Measured, devices: int) -> None:
    every = found(make_config(devicesPerWorker=devices), measured)
    assert {each.result for each in every.values()} == {"passed"}
    assert ("accelerators" in every, "transport" in every) == (devices > 0, devices > 0)


TROUBLES: dict[str, tuple[Measured, str, str, str, list[str]]] = {
    "a process that does not start": (
        replace(WELL, silent={"b": "no answer within 180 s"}, devices=WELL.devices[:1]),
        *("ranks", "failed", "No answer from b: b: no answer within 180 s.", ["b"]),
    ),
    "/dev/shm that is too small": (
        with_pod(pod("b", shared_memory=2**26)),
        *("shared-memory", "failed", "/dev/shm of b has 0.1Gi, and the job asked for 2.0Gi.", ["b"]),
    ),
    "a library of another version": (
        replace(WELL, pods=(*WELL.pods, pod("c", versions={"torch": "2.12.0"}))),
        *("versions", "failed", "torch is 2.12.0 in c and 2.13.0 in a, b, head.", ["c"]),
    ),
    "a volume that cannot be written": (
        replace(WELL, folders=(*WELL.folders, Folder("c", "Permission denied"))),
        *("run-directory", "failed", "c cannot write DIRECTORY: Permission denied.", ["c"]),
    ),
    "a volume that is not shared": (
        replace(
            WELL,
            folders=(
                *(replace(folder, unseen=("c",)) for folder in WELL.folders),
                Folder("c", None, ("a", "b", "head"), GiB),
            ),
        ),
        *("run-directory", "failed", "Other pods do not see what c has written in DIRECTORY.", ["c"]),
    ),
    "a volume that is nearly full": (
        replace(WELL, folders=(*WELL.folders, Folder("c", None, (), 1000))),
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
        replace(WELL, has_chat_template=False),
        *("chat-template", "warned", "The tokenizer in /models/q has no chat template", []),
    ),
    "a host name that leads nowhere": (
        with_pod(pod("b", resolves=False)),
        *("host-names", "warned", "The own name of b leads to no address", ["b"]),
    ),
    "a clock that is wrong": (
        replace(WELL, skews={"a": 0.0, "b": -31.5}),
        *("clocks", "warned", "The clock of b is 31.5 s away from the head's.", ["b"]),
    ),
    "a firewall": (
        replace(WELL, broken=(BrokenLink("a", "b", "10.0.0.2 does not answer within 5 s"),)),
        *("connections", "failed", "a -> b: 10.0.0.2 does not answer within 5 s", ["b"]),
    ),
    "a rank that does not come to the all-reduce": (
        replace(WELL, reductions=(WELL.reductions[0], Reduction("b", error="no answer within 60 s"))),
        *("all-reduce", "failed", "(gloo, 2 ranks, interfaces eth0): b: no answer within 60 s.", ["b"]),
    ),
    "one that others wait for": (
        replace(
            WELL,
            reductions=(Reduction("a", error="waited"), Reduction("b", error="no answer within 120 s", gone=True)),
        ),
        *("all-reduce", "failed", "interfaces eth0): b: no answer within 120 s.", ["b"]),
    ),
    "a wrong sum": (
        replace(WELL, reductions=(WELL.reductions[0], Reduction("b", wrong=(1024,), seconds=1, bytes=1024))),
        *("all-reduce", "failed", "b got a wrong sum of 1024 bytes", ["b"]),
    ),
    "an accelerator that torch does not see": (
        replace(ON_GPUS, devices=(ON_GPUS.devices[0], Device("b", 0))),
        *("accelerators", "failed", "torch shows 0 accelerators to a process of b, not 1.", ["b"]),
    ),
    "an accelerator that two have": (
        replace(ON_GPUS, devices=(ON_GPUS.devices[0],) * 2),
        *("accelerators", "failed", "Two processes of a have the same accelerator.", ["a"]),
    ),
    "an accelerator that somebody else uses": (
        replace(ON_GPUS, devices=(ON_GPUS.devices[0], Device("b", 1, "H100", "uuid-b", 40 * GiB, 80 * GiB))),
        *("accelerators", "failed", "in use by others: 40.0Gi of 80.0Gi are taken.", ["b"]),
    ),
    "accelerators of two kinds": (
        replace(ON_GPUS, devices=(ON_GPUS.devices[0], Device("b", 1, "A100", "uuid-b", 80 * GiB, 80 * GiB))),
        *("accelerators", "warned", "of several kinds: A100, H100", []),
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_each_trouble_is_told_with_its_pods_and_a_remedy(make_config: MakeConfig, trouble: str) -> None:
    measured, name, result, words, pods = TROUBLES[trouble]
    changes = {"devicesPerWorker": 1} if measured.backend == "nccl" else {}
    config = make_config(model={"fromSeed": None, "path": "/models/q"}, **changes)
    every = found(config, measured)
    check = every.pop(name)
    assert (check.result, check.pods) == (result, pods)
    assert words.replace("DIRECTORY", config.run_directory) in check.message
    assert check.remedy
    assert {each.result for each in every.values()} == {"passed"}, "one trouble, one finding"


def test_tcp_fails_only_where_rdma_is_required(make_config: MakeConfig) -> None:
    config = make_config(devicesPerWorker=1)
    slow = replace(
        ON_GPUS, reductions=(*ON_GPUS.reductions, Reduction("c", seconds=1, bytes=1, transports=("Socket",)))
    )
    assert found(config, slow)["transport"].result == "passed"
    required = found(config, slow, EXPECTED.model_copy(update={"require_rdma": True}))["transport"]
    assert (required.result, required.pods, required.value) == ("failed", ["c"], "IB, Socket")


def test_storage_that_nobody_shares_is_not_expected_to_be_shared(make_config: MakeConfig) -> None:
    apart = replace(WELL, folders=tuple(replace(folder, unseen=("x",)) for folder in WELL.folders))
    expected = EXPECTED.model_copy(update={"shared_storage": False})
    assert found(make_config(), apart, expected)["run-directory"].result == "passed"


def test_a_chat_template_of_the_job_is_enough(make_config: MakeConfig) -> None:
    config = make_config(data={"chatTemplate": "{{ messages }}"})
    assert "chat-template" not in found(config, replace(WELL, has_chat_template=False))


def test_many_pods_are_counted_and_all_are_listed(make_config: MakeConfig) -> None:
    pods = tuple(pod(f"p{number}", shared_memory=0) for number in range(9))
    check = found(make_config(), replace(WELL, pods=(*WELL.pods, *pods)))["shared-memory"]
    assert "p0, p1, p2 and 6 more" in check.message
    assert len(check.pods) == 9


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """doc/PERFORMANCE.md: for an all-reduce, algbw times 2 (n - 1) / n."""
    assert bus_bandwidth(8 * 10**9, 1.0, ranks=8) == pytest.approx(8e9 * 7 / 4)
    assert bus_bandwidth(10**9, 0.5, ranks=2) == pytest.approx(2e9)


def test_every_check_is_in_the_document(make_config: MakeConfig) -> None:
    document = (Path(__file__).parents[2] / "docs/preflight.md").read_text()
    written = set(re.findall(r"^\| `([a-z-]+)` \|", document, re.MULTILINE))
    config = make_config(model={"fromSeed": None, "path": "/models/q"}, devicesPerWorker=1)
    assert written == {*found(config, replace(ON_GPUS, has_chat_template=True)), "time-limit"}
