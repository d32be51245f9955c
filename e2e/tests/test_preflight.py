"""The preflight checks of a command, in pods: a wrong interface fails with its remedy, which makes the job succeed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster import Cluster
from installation import CLAIM
from jobs import (
    START_TIMEOUT_S,
    apply_job,
    await_cleanup,
    await_condition,
    build_command_job,
    get_condition,
    run_rlt,
)

pytestmark = pytest.mark.cluster


def test_a_wrong_interface_is_named_and_the_remedy_makes_the_job_succeed(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    job = build_command_job("checked", "python3", "-c", "print('trained')")
    job["spec"] |= {"preflight": {"level": "basic"}, "storage": {"claimName": CLAIM}}
    wrong = {**job["spec"]["cluster"], "env": [{"name": "GLOO_SOCKET_IFNAME", "value": "ens5"}]}
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps({**job, "spec": {**job["spec"], "cluster": wrong}}))
    failed = run_rlt(cluster, "preflight", file, "--namespace", namespace, "-o", "json", expected=1)
    checks = {check["name"]: check for check in json.loads(failed.stdout)}
    assert {check["stage"] for check in checks.values()} == {"network"}, "the stage that fails is the last one"
    assert checks["interfaces"]["result"] == "failed"
    assert "GLOO_SOCKET_IFNAME=ens5 selects no interface" in checks["interfaces"]["message"]
    assert "Set network.socketInterface to eth0" in checks["interfaces"]["remedy"]
    assert {name: checks[name]["result"] for name in ("ranks", "dns", "head-ports")} == {
        "ranks": "passed",
        "dns": "passed",
        "head-ports": "passed",
    }
    await_cleanup(cluster, namespace, "checked-preflight")

    job["spec"]["network"] = {"socketInterface": "eth0"}
    name = apply_job(cluster, namespace, job)
    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
    assert get_condition(done, "PreflightPassed")["reason"] == "Checked"
    passed = {check["name"]: check for check in done["status"]["preflight"]}
    assert [check["name"] for check in passed.values() if check["result"] == "failed"] == []
    assert {check["stage"] for check in passed.values()} == {"network", "services", "data"}
    assert passed["caches"]["result"] == passed["run-directory"]["result"] == "passed"
    assert done["status"]["preflightPassed"]["nodes"]
    assert run_rlt(cluster, "logs", name, "--namespace", namespace).stdout == "trained\n"
