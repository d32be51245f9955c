"""The preflight checks of commands, in pods: three mistakes fail with their remedies, which make a job succeed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rlt_e2e.cluster import Cluster
from rlt_e2e.installation import CLAIM
from rlt_e2e.jobs import (
    START_TIMEOUT_S,
    Job,
    apply_job,
    await_cleanup,
    await_condition,
    build_command_job,
    get_condition,
    run_rlt,
)

pytestmark = pytest.mark.cluster

SMALL = {"cpu": "550m", "memory": "2Gi"}
"""The pods of three jobs fit on the cluster."""
Check = Mapping[str, Any]


def use_missing_interface(cluster: dict[str, Any]) -> None:
    cluster["env"] = [{"name": "GLOO_SOCKET_IFNAME", "value": "ens5"}]


def use_small_shared_memory(cluster: dict[str, Any]) -> None:
    """64 MiB are what container runtimes mount by default."""
    volume = {"name": "default-size", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    container = {"name": "ray-worker", "volumeMounts": [{"name": "default-size", "mountPath": "/dev/shm"}]}
    cluster["workers"][0]["podTemplate"] = {"spec": {"volumes": [volume], "containers": [container]}}


def use_folder_of_root(cluster: dict[str, Any]) -> None:
    cluster["env"] = [{"name": "TRITON_CACHE_DIR", "value": "/opt/triton"}]


MISTAKES: Mapping[str, tuple[Callable[[dict[str, Any]], None], str, str, str]] = {
    "interfaces": (
        use_missing_interface,
        "network",
        "GLOO_SOCKET_IFNAME=ens5 selects no interface",
        "Set network.socketInterface to eth0",
    ),
    "shared-memory": (
        use_small_shared_memory,
        "services",
        "has 0.1Gi, but the job requests 0.5Gi",
        "Set the size of the pod's volume at /dev/shm",
    ),
    "caches": (
        use_folder_of_root,
        "data",
        "TRITON_CACHE_DIR=/opt/triton: Permission denied",
        "set storage.hfHome and the variables in cluster.env to another folder",
    ),
}
"""Check -> the mistake, the stage of the check, and texts of its message and its remedy."""


def build_job(name: str) -> Job:
    job = build_command_job(name, "python3", "-c", "print('trained')", head={"resources": SMALL})
    job["spec"] |= {"preflight": {"level": "basic"}, "storage": {"claimName": CLAIM}}
    job["spec"]["cluster"]["workers"] = [{"replicas": 1, "resources": SMALL}]
    return job


def test_mistakes_are_named_and_the_remedies_make_the_job_succeed(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    def preflight(name: str) -> list[Check]:
        job = build_job(name)
        make_mistake, *_ = MISTAKES[name]
        make_mistake(job["spec"]["cluster"])
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps(job))
        done = run_rlt(cluster, "preflight", file, "--namespace", namespace, "-o", "json", expected=1)
        checks: list[Check] = json.loads(done.stdout)
        return checks

    with ThreadPoolExecutor(len(MISTAKES)) as pool:
        results = dict(zip(MISTAKES, pool.map(preflight, MISTAKES), strict=True))
    for name, (_, stage, message, remedy) in MISTAKES.items():
        (failed,) = (check for check in results[name] if check["name"] == name)
        assert (failed["result"], failed["stage"]) == ("failed", stage)
        assert results[name][-1]["stage"] == stage, "the stage that fails is the last one"
        assert message in failed["message"]
        assert remedy in failed["remedy"]
        await_cleanup(cluster, namespace, f"{name}-preflight")
    first = {check["name"]: check["result"] for check in results["interfaces"]}
    assert (first["ranks"], first["dns"], first["head-ports"]) == ("passed", "passed", "passed")

    job = build_job("checked")
    job["spec"]["network"] = {"socketInterface": "eth0"}
    job["spec"]["cluster"]["workers"][0]["resources"] = {**SMALL, "sharedMemory": "512Mi"}
    job["spec"]["cluster"]["env"] = [{"name": "TRITON_CACHE_DIR", "value": "/tmp/triton"}]
    name = apply_job(cluster, namespace, job)
    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
    assert get_condition(done, "PreflightPassed")["reason"] == "Checked"
    passed = {check["name"]: check for check in done["status"]["preflight"]}
    assert [check["name"] for check in passed.values() if check["result"] == "failed"] == []
    assert {check["stage"] for check in passed.values()} == {"network", "services", "data"}
    assert passed["caches"]["result"] == passed["run-directory"]["result"] == "passed"
    assert done["status"]["preflightPassed"]["nodes"]
    assert run_rlt(cluster, "logs", name, "--namespace", namespace).stdout == "trained\n"
