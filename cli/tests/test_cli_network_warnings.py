"""Nodes of which only some have RDMA: every command that reads nodes names them, and the field that selects them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rlt_cli.main import cli

JOB = """
apiVersion: rlt.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: verl}
spec:
  framework: {type: command, command: [python3, train.py]}
  cluster:
    image: registry.example/verl
    workers:
      - replicas: 2
        resources: {cpu: "8", memory: 64Gi}
        accelerator: {resourceName: nvidia.com/gpu, count: 8}
"""
MACHINES = """
- {name: gpu-1, accelerator: nvidia.com/gpu, count: 8, fabric: infiniband, adapters: mlx5}
- {name: gpu-2, accelerator: nvidia.com/gpu, count: 8, fabric: infiniband, adapters: mlx5}
- {name: gpu-3, accelerator: nvidia.com/gpu, count: 8, fabric: tcp}
"""


@pytest.mark.parametrize(
    "words", [("validate",), ("render",), ("render", "--target", "slurm"), ("explain", "network")], ids=" ".join
)
def test_the_warning_names_nodes_and_field(words: tuple[str, ...], tmp_path: Path) -> None:
    machines = tmp_path / "machines.yaml"
    machines.write_text(MACHINES)
    done = CliRunner().invoke(cli, [*words, "-", "--nodes", str(machines)], input=JOB)
    output = done.stdout + done.stderr
    assert done.exit_code == 0, output
    assert "so that all workers use TCP: onprem-infiniband" in output
    assert "on gpu-1, gpu-2; tcp on gpu-3; 2 nodes of onprem-infiniband" in output
    assert "to use RDMA, set spec.cluster.workers[].nodeSelector to {" in output


def test_validate_without_nodes_has_no_warning_about_them() -> None:
    assert "TCP" not in CliRunner().invoke(cli, ["validate", "-"], input=JOB).stderr
