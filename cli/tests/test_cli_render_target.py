"""rlt render --target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt_cli.main import cli
from rlt_cli.render_target import TARGETS

EXAMPLES = Path(__file__).parents[2] / "examples"
ARITHMETIC = str(EXAMPLES / "01-arithmetic-grpo.yaml")
RESUME = "26-resume-from-another-job.yaml"
RENDER = ("--runtime", str(EXAMPLES / "runtimes/cpu.yaml"), "--storage", "/shared")


def rlt(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["render", *arguments], input=input)


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"compose"}))
def test_every_example_is_rendered(target: str, tmp_path: Path) -> None:
    for path in sorted({*EXAMPLES.glob("*.yaml")} - {EXAMPLES / RESUME}):
        nodes = tmp_path / "machines.yaml"
        nodes.write_text(yaml.safe_dump(list_machines(yaml.safe_load(path.read_text())["spec"]["cluster"]["workers"])))
        done = rlt(*RENDER, str(path), "--target", target, "--nodes", str(nodes))
        assert done.exit_code == 0, f"{path.name}: {done.stderr}"
        assert "--num-cpus=" in done.stdout
        assert "/mnt/rlt" not in done.stdout, path.name


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_job_that_only_the_operator_finds_is_rejected(target: str) -> None:
    done = rlt(*RENDER, str(EXAMPLES / RESUME), "--target", target)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "spec.checkpoint.resumeFromJob: arithmetic-grpo is found on Kubernetes alone" in done.stderr
    assert "resumeFromPath" in done.stderr


def list_machines(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One machine for each worker, in the form of docs/slurm.md."""
    machines: list[dict[str, Any]] = []
    for group in groups:
        accelerator = group.get("accelerator", {})
        fabric = {"nvidia.com/gpu": "infiniband", "amd.com/gpu": "roce"}.get(accelerator.get("resourceName", ""), "tcp")
        devices = {"accelerator": accelerator["resourceName"], "count": accelerator["count"]} if accelerator else {}
        adapters = {"adapters": "mlx5"} if accelerator else {}
        for number in range(group.get("replicas", 1)):
            name = f"{group.get('name', 'workers')}-{number}"
            machines.append({"name": name, "fabric": fabric, **devices, **adapters})
    return machines


def test_the_example_for_slurm_has_nodes_devices_time_and_fabric(tmp_path: Path) -> None:
    path = EXAMPLES / "29-slurm.yaml"
    nodes = tmp_path / "machines.yaml"
    nodes.write_text(yaml.safe_dump(list_machines(yaml.safe_load(path.read_text())["spec"]["cluster"]["workers"])))
    options = ("--target", "slurm", "--container-runtime", "apptainer", "--nodes", str(nodes))
    script = rlt(*RENDER, str(path), *options).stdout.splitlines()
    assert {"#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", "export NCCL_IB_HCA=mlx5"} <= {*script}
    assert any("apptainer exec --nv" in line for line in script)
    (minutes,) = (int(line.partition("--time=")[2]) for line in script if line.startswith("#SBATCH --time="))
    assert 1440 <= minutes < 1500


@pytest.mark.parametrize("runtime", ["apptainer", "enroot"])
def test_an_image_file_of_the_nodes_replaces_the_image(runtime: str) -> None:
    options = ("--target", "slurm", "--container-runtime", runtime, "--image-file", "/shared/verl.sif")
    script = rlt(*RENDER, ARITHMETIC, *options).stdout
    assert "/shared/verl.sif" in script
    assert "localhost/rlt-trainer" not in script
    assert "apptainer pull" not in script


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--image-file", "/a.sif"), "--image-file requires --container-runtime apptainer or enroot"),
        (("--container-runtime", "docker", "--image-file", "/a"), "requires --container-runtime apptainer or enroot"),
        (("--container-runtime", "apptainer", "--image-file", "a.sif"), "--image-file a.sif: use an absolute path"),
    ],
)
def test_an_image_file_that_no_node_finds_is_rejected(options: tuple[str, ...], message: str) -> None:
    done = rlt(*RENDER, ARITHMETIC, "--target", "slurm", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_files_are_written_into_a_new_directory(tmp_path: Path) -> None:
    directory = tmp_path / "new/dstack"
    done = rlt(ARITHMETIC, "--target", "dstack", "--directory", str(directory))
    assert (done.exit_code, done.stdout) == (0, "")
    names = [f"arithmetic-grpo.{each}" for each in ("dstack.yml", "fleet.dstack.yml", "programs.base85")]
    assert sorted(path.name for path in directory.iterdir()) == names
    assert str(directory / names[0]) in done.stderr


def test_a_directory_with_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = rlt(ARITHMETIC, "--target", "slurm", "--directory", str(tmp_path))
    assert done.exit_code == 1
    assert f"error: {tmp_path}: the directory is not empty." in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}-*"))


def test_fields_of_kubernetes_get_a_warning() -> None:
    text = Path(ARITHMETIC).read_text() + "  scheduling: {queueName: team}\n"
    done = rlt("-", "--target", "ray", input=text)
    assert done.exit_code == 0
    assert "warning: spec.scheduling.queueName: team has no effect outside of Kubernetes: choose a queue" in done.stderr
    assert "warning: spec.storage.claimName: rlt-runs has no effect" in done.stderr


def test_several_workers_do_not_fit_into_compose(tmp_path: Path) -> None:
    done = rlt(ARITHMETIC, "--target", "compose", "--directory", str(tmp_path / "new"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "spec.cluster.workers: 2 workers need 2 machines: set replicas to 1, or use --target docker" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("target", ["ray", "dstack"])
def test_a_field_without_effect_is_named_in_the_file_too(target: str) -> None:
    text = Path(ARITHMETIC).read_text() + "  failurePolicy: {maxDisruptions: 3}\n"
    done = rlt(*RENDER, "-", "--target", target, input=text)
    assert done.exit_code == 0, done.stderr
    note = f"spec.failurePolicy.maxDisruptions: 3 has no effect with --target {target}: "
    assert f"warning: {note}" in done.stderr
    assert f"\n# {note}" in done.stdout
    assert done.stdout.startswith({"ray": "#!/bin/bash\n", "dstack": "--- # "}[target])


def test_nodes_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("items: [{metadata: {name: a}, status: {conditions: [{type: Ready, status: 'True'}]}}]")
    text = Path(ARITHMETIC).read_text() + "  network: {require: rdma}\n"
    done = rlt("-", "--target", "slurm", "--nodes", str(nodes), input=text)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "arithmetic-grpo: the nodes do not fit: RdmaNotFound: " in done.stderr


GPU_JOB = """
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


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("fabric: infiniband, adapters: mlx5", "export NCCL_IB_HCA=mlx5"),
        ("fabric: efa, instanceType: p5.48xlarge", "The network profile is aws-efa."),
        ("fabric: tcp", "The network profile is tcp."),
    ],
)
def test_machines_of_an_inventory_choose_the_network_profile(machine: str, expected: str, tmp_path: Path) -> None:
    nodes = tmp_path / "machines.yaml"
    lines = [f"- {{name: gpu-{n}, accelerator: nvidia.com/gpu, count: 8, {machine}}}" for n in range(2)]
    nodes.write_text("\n".join(lines))
    done = rlt("-", "--target", "slurm", "--nodes", str(nodes), input=GPU_JOB)
    assert done.exit_code == 0, done.stderr
    assert expected in done.stdout


def test_an_unknown_fabric_of_a_machine_is_rejected(tmp_path: Path) -> None:
    nodes = tmp_path / "machines.yaml"
    nodes.write_text("- {name: gpu-1, fabric: omnipath}")
    done = rlt("-", "--target", "slurm", "--nodes", str(nodes), input=GPU_JOB)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "gpu-1: fabric: String should match pattern '^(infiniband|roce|efa|tcp)$'" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--storage", "/a"), "--storage and --directory require --target"),
        (("--target", "ray", "--partition", "a"), "require --target slurm"),
        (("--target", "ray", "--storage", "a"), "--storage a: use an absolute path"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(options: tuple[str, ...], message: str) -> None:
    done = rlt(ARITHMETIC, *options)
    assert done.exit_code == 2
    assert message in done.stderr
