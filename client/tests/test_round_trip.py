"""The commands of rendered examples convert back to the same job. What else `rlt render` writes is an error."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric.node_sets import CASES
from verl_jobs import ONLY_0_9, RUN, TABLE
from verl_jobs import resolve as resolve_verl

from rlt.convert.convert import convert
from rlt.convert.draft import ConvertError
from rlt.convert.verl_job import PLACES
from rlt.manifest_files import Document
from rlt.offline_job import build_offline_job, detect_network, render_children
from rlt.validation import ValidatedFiles, validate_documents
from rlt_api.frameworks.arguments import parse_value
from rlt_api.frameworks.mapping import find, load_mapping
from rlt_api.frameworks.verl.settings import build_arguments
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.resolved_spec import build_resolved_spec
from rlt_core.children.program import build_command
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.job import Job
from rlt_core.targets.compose import build_compose_file
from rlt_core.targets.docker import build_docker_script
from rlt_core.targets.dstack import build_fleet, build_task
from rlt_core.targets.launch import Launch, build_launch, decide_host_network
from rlt_core.targets.ray import build_ray_script
from rlt_core.targets.slurm import SlurmOptions, build_slurm_script

ROOT = Path(__file__).parents[2]
RUNTIME = yaml.safe_load((ROOT / "examples/runtimes/cpu.yaml").read_text())
AMD_NODES = CASES["amd-verl-cluster"].nodes
NVIDIA_NODES = CASES["onprem-ib"].nodes
Json = dict[str, Any]
RENDERERS: dict[str, Callable[[Launch], str]] = {
    "slurm": lambda launch: build_slurm_script(launch, SlurmOptions("apptainer", None, None)),
    "docker": build_docker_script,
    "ray": build_ray_script,
    "compose": lambda launch: yaml.safe_dump(build_compose_file(launch)),
    "dstack": lambda launch: yaml.safe_dump_all([build_fleet(launch), build_task(launch)]),
}


def load(path: Path) -> tuple[Json, ValidatedFiles]:
    """The manifest of an example with its runtime. As at its acceptance, resumeFromJob is a path."""
    manifest: Json = yaml.safe_load(path.read_text())
    checkpoint = manifest["spec"].get("checkpoint", {})
    if "resumeFromJob" in checkpoint:
        del checkpoint["resumeFromJob"]
        checkpoint |= {"resume": "path", "resumeFromPath": "/mnt/rlt/runs/a-1/checkpoints/step-100"}
    documents = [Document(path.name, 1, each, {}) for each in (manifest, RUNTIME)]
    return manifest, validate_documents(documents)


def build(path: Path, *, on_hosts: bool = False) -> Job:
    """The job on nodes that fit."""
    manifest, files = load(path)
    job = build_offline_job(manifest, files)
    nodes = parse_nodes(AMD_NODES if "amd.com" in path.read_text() else NVIDIA_NODES)
    return decide_host_network(job, nodes) if on_hosts else detect_network(job, nodes)


@pytest.mark.parametrize("target", ["manifests", "slurm", "docker", "ray", "compose", "dstack"])
def test_what_rlt_render_wrote_is_an_error_with_the_fix(target: str) -> None:
    job = build(ROOT / "examples/11-gsm8k-8-gpus.yaml", on_hosts=target != "manifests")
    if target == "manifests":
        rendered = yaml.dump_all(render_children(job), Dumper=yaml.CSafeDumper)
    else:
        launch = build_launch(job, storage="/mnt/rlt", any_port=target == "slurm")
        rendered = RENDERERS[target](launch)
    with pytest.raises(ConvertError, match="source is what rlt or its operator wrote for a job: use the job's file"):
        convert(rendered, "source")


@pytest.mark.parametrize("name", ["07-verl", "08-openrlhf", "09-verl-command"])
def test_the_command_converts_to_the_same_command(name: str) -> None:
    job = build(ROOT / f"examples/{name}.yaml")
    assert job.spec
    words = build_command(job, job.spec)
    spec = convert(shlex.join(words), "source").manifest["spec"]
    assert spec["framework"]["command"] == words
    (worker,) = spec["cluster"]["workers"]
    (group,) = job.spec.cluster.workers
    assert group.accelerator
    assert (worker["replicas"], worker["accelerator"]["count"]) == (group.replicas, group.accelerator.count)


def test_verls_command_converts_to_the_settings_of_the_job() -> None:
    path = ROOT / "examples/07-verl.yaml"
    job = build(path)
    assert job.spec
    converted = convert(shlex.join(build_command(job, job.spec)), "source", "builtin")
    wanted = build_resolved_spec(yaml.safe_load(path.read_text())["spec"], None)
    spec = {**converted.manifest["spec"], "observability": {}}  # a project without a key
    got = build_resolved_spec(spec, None)
    for block in ("model", "data", "checkpoint"):
        assert got[block] == wanted[block]
    for block, names in {
        "training": ("trainBatchSize", "ppoMiniBatchSize", "ppoMicroBatchSizePerDevice", "learningRate", "totalEpochs"),
        "rollout": ("responsesPerPrompt", "tensorParallelSize", "gpuMemoryUtilization", "temperature", "enforceEager"),
        "algorithm": ("advEstimator", "klLossCoef", "klLossType", "clipRatio", "policyLoss", "lossAggMode"),
    }.items():
        assert {name: got[block][name] for name in names} == {name: wanted[block][name] for name in names}


@pytest.mark.parametrize("version", ["0.9", "0.5"])
def test_a_verl_command_converts_to_a_job_with_the_same_command(version: str) -> None:
    for name, changes in {**TABLE, **(ONLY_0_9 if version == "0.9" else {})}.items():
        command = build_arguments(resolve_verl({"framework.version": version, **changes}), RUN)
        converted = convert(shlex.join(command), "source", "verl").manifest["spec"]
        assert converted["framework"].get("version", "0.9") == version
        spec = RLTrainingJobSpec.model_validate(build_resolved_spec(converted, None))
        wanted = read_settings(command)
        got = read_settings(build_arguments(spec, RUN))
        assert (name, {key: got.get(key) for key in wanted}) == (name, wanted)
        for key in got.keys() - wanted.keys():
            setting = find(key, load_mapping().verl)
            assert setting, (name, key)
            assert parse_value(got[key]) == setting.default, (name, key)


def read_settings(command: list[str]) -> dict[str, str]:
    """The settings in a verl command. The last one of a key counts."""
    pairs = (word.lstrip("+").partition("=") for word in command[3:])
    return {key: value for key, _, value in pairs if key not in PLACES}


def test_the_example_for_verl_converts_back_with_its_overrides() -> None:
    path = ROOT / "examples/07-verl.yaml"
    job = build(path)
    assert job.spec
    converted = convert(shlex.join(build_command(job, job.spec)), "source", "verl").manifest["spec"]
    wanted = yaml.safe_load(path.read_text())["spec"]
    assert converted["framework"]["overrides"] == wanted["framework"]["overrides"]
    for block in ("model", "data", "checkpoint"):
        assert build_resolved_spec(converted, None)[block] == build_resolved_spec(wanted, None)[block]
