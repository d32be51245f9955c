"""Rendered examples convert back to the same job, but for the fields that the table in docs/cli.md names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric.node_sets import CASES
from verl_jobs import ONLY_0_9, RUN, TABLE
from verl_jobs import resolve as resolve_verl

from rlt.convert.convert import Converted, convert
from rlt.convert.draft import ConvertError
from rlt.convert.rendered import TRAINING_BLOCKS
from rlt.convert.verl_job import PLACES
from rlt.manifest_files import Document
from rlt.offline_job import build_offline_job, detect_network, render_children
from rlt.validation import ValidatedFiles, validate_documents
from rlt_api.frameworks.roll import build_config
from rlt_api.frameworks.verl import build_arguments
from rlt_api.known_programs import parse_value
from rlt_api.mapping import find, load_mapping
from rlt_api.resolved_spec import MUTABLE_FIELDS, build_resolved_spec
from rlt_api.spec import RLTrainingJobSpec
from rlt_core.entrypoint import build_command
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.job import Job
from rlt_core.targets.compose import build_compose_file
from rlt_core.targets.docker import build_docker_script
from rlt_core.targets.dstack import build_fleet, build_task
from rlt_core.targets.launch import build_launch, decide_host_network
from rlt_core.targets.ray import build_ray_script
from rlt_core.targets.slurm import SlurmOptions, build_slurm_script

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.yaml"))
RUNTIME = yaml.safe_load((ROOT / "examples/runtimes/cpu.yaml").read_text())
ROW = re.compile(r"^\| (`.*`) \| (yes|no) \| (yes|no) \| .* \|$", re.M)
AMD_NODES, NVIDIA_NODES = CASES["amd-verl-cluster"].nodes, CASES["onprem-ib"].nodes
Json = dict[str, Any]


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


def render_manifests(job: Job) -> list[Json]:
    """The manifests of the operator, without the programs in the ConfigMap."""
    manifests = render_children(job)
    (files,) = (each["data"] for each in manifests if each["kind"] == "ConfigMap")
    for key in [key for key in files if key.endswith(".py")]:
        del files[key]
    return manifests


def find_differences(path: Path, converted: Converted) -> set[str]:
    """The fields with different values in the resolved specs."""
    manifest, files = load(path)
    runtime = files.runtimes.get(files.get_runtime_name(manifest) or "")
    given = dict(list_leaves(resolve(manifest["spec"], runtime)))
    back = dict(list_leaves(resolve(converted.manifest["spec"], None)))
    return {path for path in given.keys() | back.keys() if given.get(path) != back.get(path)}


def resolve(spec: Json, runtime: Json | None) -> Json:
    """The resolved spec with the mutable fields of the job."""
    return {**build_resolved_spec(spec, runtime), **{key: spec[key] for key in MUTABLE_FIELDS & spec.keys()}}


def list_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of each field. An empty block equals a missing one. A list of objects is one field each."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from list_leaves(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, each in enumerate(value):
            yield from list_leaves(each, f"{path}[{index}]")
    elif value not in (None, [], {}):
        yield path, value


def read_table(column: int) -> tuple[str, ...]:
    """The fields that a kind of output does not have: 0 for manifests, 1 for scripts."""
    rows = ROW.findall((ROOT / "docs/cli.md").read_text())
    return tuple(field for row in rows if row[1 + column] == "no" for field in re.findall(r"`([^`]+)`", row[0]))


def is_covered(path: str, field: str) -> bool:
    plain = re.sub(r"\[\d+\]", "[]", path)
    return plain == field or plain.startswith((f"{field}.", f"{field}["))


def find_uncovered(differences: set[str], column: int) -> list[str]:
    """The differences that the table does not name."""
    return sorted(each for each in differences if not any(is_covered(each, field) for field in read_table(column)))


def without_training(differences: set[str], *more: str) -> set[str]:
    """The differences of other blocks: the program of another framework has the settings of the training."""
    return {each for each in differences if each.partition(".")[0].partition("[")[0] not in (*TRAINING_BLOCKS, *more)}


def test_manifests_convert_back_to_the_job() -> None:
    seen: set[str] = set()
    for path in EXAMPLES:
        job = build(path)
        assert job.spec
        converted = convert(yaml.dump_all(render_manifests(job), Dumper=yaml.CSafeDumper), "source")
        assert converted.manifest["metadata"]["name"] == job.name
        differences = find_differences(path, converted)
        if job.spec.framework.type != "builtin":
            differences = without_training(differences)
            assert any(note.what == "the program" for note in converted.left_out)
        assert (path.name, find_uncovered(differences, 0)) == (path.name, [])
        seen |= differences
    assert [field for field in read_table(0) if not any(is_covered(each, field) for each in seen)] == []


def test_slurm_scripts_convert_back_to_the_job() -> None:
    seen: set[str] = set()
    for path in EXAMPLES:
        job = build(path, on_hosts=True)
        assert job.spec
        launch = build_launch(job, storage=job.spec.storage.mount_path, any_port=True)
        converted = convert(build_slurm_script(launch, SlurmOptions("apptainer", None, None)), "source")
        assert converted.manifest["metadata"]["name"] == job.name
        differences = find_differences(path, converted)
        if job.spec.framework.type in ("verl", "openrlhf"):
            keys = [word.partition("=")[0] for word in converted.manifest["spec"]["framework"]["command"]]
            assert keys == [word.partition("=")[0] for word in build_command(job, job.spec)]
            differences = without_training(differences, "framework")
        elif job.spec.framework.type == "roll":
            back = RLTrainingJobSpec.model_validate(build_resolved_spec(converted.manifest["spec"], None))
            assert build_config(back, RUN) == build_config(job.spec, RUN)
            differences = without_training(differences, "framework")
        assert (path.name, find_uncovered(differences, 1)) == (path.name, [])
        seen |= differences
    assert [field for field in read_table(1) if not any(is_covered(each, field) for each in seen)] == []


@pytest.mark.parametrize("target", ["docker", "ray"])
@pytest.mark.parametrize("number", [0, 4, 8])
def test_other_scripts_convert_back_to_the_job(target: str, number: int) -> None:
    job = build(EXAMPLES[number], on_hosts=True)
    assert job.spec
    launch = build_launch(job, storage=job.spec.storage.mount_path)
    script = build_docker_script(launch) if target == "docker" else build_ray_script(launch)
    differences = find_differences(EXAMPLES[number], convert(script, "source"))
    assert find_uncovered(differences - ({"cluster.image"} if target == "ray" else set()), 1) == []


def test_files_of_compose_and_dstack_convert_back_to_the_job() -> None:
    targets = set()
    for path in EXAMPLES:
        job = build(path, on_hosts=True)
        assert job.spec
        launch = build_launch(job, storage=job.spec.storage.mount_path)
        rendered = {"dstack": [build_fleet(launch), build_task(launch)]}
        if launch.nodes == 1:
            rendered["compose"] = [build_compose_file(launch)]
        for target, documents in rendered.items():
            converted = convert(yaml.dump_all(documents, Dumper=yaml.CSafeDumper), "source")
            assert converted.manifest["metadata"]["name"] == job.name
            differences = find_differences(path, converted)
            if job.spec.framework.type in ("verl", "openrlhf", "roll"):
                differences = without_training(differences, "framework")
            assert (path.name, target, find_uncovered(differences, 1)) == (path.name, target, [])
            targets.add((target, job.spec.framework.type))
    assert {("compose", "builtin"), ("dstack", "builtin"), ("dstack", "command")} <= targets


def test_incomplete_output_is_an_error() -> None:
    manifests = render_manifests(build(EXAMPLES[0]))
    (cluster,) = (each for each in manifests if each["kind"] == "RayCluster")
    with pytest.raises(ConvertError, match="the manifests of 2 jobs: pass those of one"):
        convert(yaml.safe_dump_all([cluster, cluster]), "source")
    del cluster["spec"]["headGroupSpec"]
    with pytest.raises(ConvertError, match="not the complete output of rlt render: KeyError: 'headGroupSpec'"):
        convert(yaml.safe_dump_all(manifests), "source")
    compose = build_compose_file(build_launch(build(ROOT / "examples/11-gsm8k-8-gpus.yaml", on_hosts=True)))
    with pytest.raises(ConvertError, match="the files of 2 jobs: pass those of one"):
        convert(yaml.safe_dump_all([compose, compose]), "source")
    del compose["services"]["ray"]["image"]
    with pytest.raises(ConvertError, match="not the complete output of rlt render: KeyError: 'image'"):
        convert(yaml.safe_dump(compose), "source")
    script = "# a on 2 nodes, rendered by `rlt render --target ray`.\n# /mnt is a folder\nRLT_END_OF_FILE"
    with pytest.raises(ConvertError, match=r"not the complete output of rlt render: KeyError: 'program.sh'"):
        convert(script, "source")


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
        wanted, got = read_settings(command), read_settings(build_arguments(spec, RUN))
        assert (name, {key: got.get(key) for key in wanted}) == (name, wanted)
        for key in got.keys() - wanted.keys():
            setting = find(key, load_mapping().verl)
            assert setting, (name, key)
            assert parse_value(got[key]) == setting.default, (name, key)


def read_settings(command: list[str]) -> dict[str, str]:
    """The settings of a command of verl. The last one of a key counts."""
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
