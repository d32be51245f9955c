"""rlt explain network: settings for a job and nodes in files, output formats, and errors for invalid input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt_cli.main import cli

EXAMPLE = Path(__file__).parents[2] / "examples/01-arithmetic-grpo.yaml"
NODE: dict[str, Any] = {
    "metadata": {"name": "gpu-0", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "8", "cpu": "96", "memory": "1000Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


@pytest.fixture
def job(tmp_path: Path) -> str:
    manifest = yaml.safe_load(EXAMPLE.read_text())
    (workers,) = manifest["spec"]["cluster"]["workers"]
    workers |= {"accelerator": {"resourceName": "nvidia.com/gpu", "count": 8, "memory": "80Gi"}, "replicas": 1}
    workers["resources"] = {"cpu": "32", "memory": "512Gi"}
    manifest["spec"]["cluster"]["env"] = [{"name": "NCCL_SOCKET_IFNAME", "value": "eth9"}]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest))
    return str(tmp_path / "job.yaml")


def run(job: str, nodes: Any, *options: str) -> Result:
    path = Path(job).with_name("nodes.yaml")
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": nodes}))
    return CliRunner().invoke(cli, ["explain", "network", job, "--nodes", str(path), *options])


def test_every_variable_has_rule_and_source_and_user_variables_are_kept(job: str) -> None:
    answer = json.loads(run(job, [NODE], "-o", "json").stdout)
    assert (answer["vendor"], answer["candidates"], answer["rejection"]) == ("nvidia", ["gpu-0"], None)
    assert "NCCL_SOCKET_IFNAME" in answer["overriddenByUser"]
    assert all(each["rule"] and each["source"] for each in answer["env"])


def test_the_table_goes_to_standard_output_alone(job: str) -> None:
    result = run(job, [NODE])
    assert result.stdout.startswith("profile ")
    assert "VARIABLE" in result.stdout
    assert result.stderr == ""


def test_a_job_requires_nodes(job: str) -> None:
    result = CliRunner().invoke(cli, ["explain", "network", job])
    assert result.exit_code == 2
    assert "explain network JOB --nodes FILE" in result.stderr


def test_a_job_whose_runtime_is_missing_is_an_error(job: str) -> None:
    manifest = yaml.safe_load(Path(job).read_text())
    manifest["spec"]["runtimeRef"] = {"name": "gpu"}
    Path(job).write_text(yaml.safe_dump(manifest))
    result = run(job, [NODE])
    assert result.exit_code == 1
    assert "spec.runtimeRef.name: gpu is not in the given files" in result.stderr


def test_a_missing_nodes_file_is_an_error_with_the_next_command(job: str) -> None:
    result = CliRunner().invoke(cli, ["explain", "network", job, "--nodes", "/nowhere/nodes.yaml"])
    assert result.exit_code == 1
    assert "next: kubectl get nodes -o yaml" in result.stderr


def test_a_job_that_the_operator_would_hold_ends_with_1(job: str) -> None:
    manifest = yaml.safe_load(Path(job).read_text())
    manifest["spec"]["network"] = {"require": "rdma"}
    Path(job).write_text(yaml.safe_dump(manifest))
    plain = {**NODE, "status": {**NODE["status"], "allocatable": {"nvidia.com/gpu": "8"}}}
    result = run(job, [plain], "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["rejection"]["code"]) == (1, "RdmaNotFound")
    assert run(job, [NODE]).exit_code == 0
