"""verl 0.9.1 trains on the embedded cluster: preset gsm8k, two steps of GRPO on a CPU, on the pods of the operator."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from word_problems import WORD_PROBLEMS

from rlt_e2e.cluster import Cluster, images
from rlt_e2e.installation import CLAIM
from rlt_e2e.jobs import START_TIMEOUT_S, apply_job, await_condition
from rlt_e2e.verl_cpu_job import SCORING, VARIABLES, build_manifest, write_model
from rlt_trainer.data.gsm8k import build_gsm8k_rows
from rlt_trainer.data.preset_files import write_parquet
from separate_environment import install

pytestmark = [pytest.mark.cluster, pytest.mark.long]

TOOLS = Path(__file__).parents[2] / "tools"
GPU = "nvidia.com/gpu"
MOUNT = "/mnt/rlt"
NAME = "verl-gsm8k"


@pytest.fixture
def _device(cluster: Cluster) -> Iterator[None]:
    """A device of a node for the duration of the test. It is a CPU for the plugin."""
    node = cluster.nodes()[0]
    cluster.set_extended_resource(node, GPU, 1)
    yield
    cluster.set_extended_resource(node, GPU, 0)


def write_volume(folder: Path) -> str:
    """Write packages, plugin, model, data and reward to the volume. Return the path of the model below it."""
    python = install("verl-cpu", "--no-deps", "--compile-bytecode", on_top=True)
    (packages,) = python.parents[1].glob("lib/*/site-packages")
    shutil.copytree(packages, folder / "verl", ignore=shutil.ignore_patterns("*.pth"), dirs_exist_ok=True)
    shutil.copy(TOOLS / "verl_cpu.py", folder / "verl")
    (folder / "verl/scoring.py").write_text(SCORING)
    model = write_model(folder / "model")
    lines = [json.loads(line) for line in WORD_PROBLEMS.read_text().splitlines()]
    rows = build_gsm8k_rows([(f"line {number}", line) for number, line in enumerate(lines)], "train")
    write_parquet(rows, folder / "train.parquet")
    return str(model.relative_to(folder))


def build_job(model: str, folder: Path) -> dict[str, Any]:
    """Build the job of the run without a cluster, for the image and the volume of the cluster."""
    job = build_manifest(Path(MOUNT, model), folder, 2)
    job["metadata"] = {"name": NAME}
    spec = job["spec"]
    kept = [each for each in spec["framework"]["overrides"] if "ray_kwargs" not in each]
    spec["framework"]["overrides"] = kept
    spec["data"] |= {"files": [f"{MOUNT}/train.parquet"], "maxPromptLength": 1024}
    spec["storage"] = {"claimName": CLAIM}
    spec["checkpoint"] = {"saveFreq": -1}
    (group,) = spec["cluster"]["workers"]
    group["resources"]["cpu"] = "1"
    actors = {"name": "RAY_OVERRIDE_RESOURCES", "value": '{"CPU": 8}'}  # Ray counts verl's actors, not their threads
    group["podTemplate"] = {"spec": {"containers": [{"name": "ray-worker", "env": [actors]}]}}
    variables = {**VARIABLES, "PYTHONPATH": f"{MOUNT}/verl"}
    spec["cluster"] |= {
        "image": images.TRAINER,
        "head": {"resources": {"cpu": "500m", "memory": "3Gi"}},
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    return job


@pytest.mark.usefixtures("_device")
def test_verl_trains_on_gsm8k(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    if not cluster.layout:
        pytest.skip("needs the embedded cluster")
    volume = cluster.shared_volume(namespace, CLAIM)
    apply_job(cluster, namespace, build_job(write_volume(volume), tmp_path))
    job = await_condition(cluster, namespace, NAME, "Succeeded", timeout_s=START_TIMEOUT_S)
    progress = job["status"]["progress"]
    assert (progress["step"], progress["totalSteps"]) == (2, 2)
    reward = progress["metrics"]["reward"]
    assert 0 < reward < 1
    header, row = cluster.kubectl("-n", namespace, "get", "rltrainingjob", NAME).splitlines()
    assert "REWARD" in header
    assert str(reward) in row.split()
