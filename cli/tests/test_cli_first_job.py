"""rlt init --model: runtime, volume and job for a model and a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt.first_job.gpus import GPUS
from rlt_api.rules.device_memory import list_moments
from rlt_api.rules.engine_memory import CACHE_SHARE, cache_share, read_trained
from rlt_api.rules.model_size import MIN_SHARE_OF_NAMED_SIZE
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.resolved_spec import build_resolved_spec
from rlt_api.validation.validate import validate_job
from rlt_cli.file_validation import load_valid_submission
from rlt_cli.main import cli

GIB = 2**30
CLUSTERS: dict[str, tuple[list[str], float, int]] = {
    "30b-on-32-h100": (["--model", "Qwen/Qwen3-30B-A3B", "--nodes", "4"], 30e9, 32),
    "8b-on-8-h100": (["--model", "Qwen/Qwen3-8B"], 8e9, 8),
    "lora-on-24-gb": (["--model", "Qwen/Qwen2.5-1.5B-Instruct", "--gpu", "l4", "--lora", "--data", "math"], 1.5e9, 1),
    "mi300x": (["--model", "Qwen/Qwen3-8B", "--gpu", "mi300x", "--data", "org/prompts"], 8e9, 8),
}
"""Name -> options, parameters by the model's name, and GPUs."""


def rlt(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=input)


def write(*options: str) -> list[dict[str, Any]]:
    done = rlt("init", *options)
    assert done.exit_code == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def resolve(runtime: dict[str, Any], job: dict[str, Any]) -> RLTrainingJobSpec:
    spec = validate_job(job["metadata"]["name"], job["spec"], runtime["spec"]).spec
    assert spec
    return spec


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_manifests_are_valid_without_a_note(cluster: str) -> None:
    options, _, _ = CLUSTERS[cluster]
    written = rlt("init", *options)
    assert all(len(line) <= 120 for line in written.stdout.splitlines())
    checked = rlt("validate", "-", input=written.stdout)
    assert (checked.exit_code, checked.stdout, checked.stderr) == (0, "", "2 manifests are valid\n")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_volume_holds_model_checkpoints_and_export(cluster: str) -> None:
    options, named, _ = CLUSTERS[cluster]
    _, volume, job = write(*options)
    parameters = named * MIN_SHARE_OF_NAMED_SIZE
    checkpoints = 0 if "--lora" in options else job["spec"]["checkpoint"]["maxToKeep"] + 1
    needed = parameters * (2 + 12 * checkpoints + 4) / GIB
    size = float(volume["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    assert 1.25 * needed <= size < 1.25 * needed + 100


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_settings_leave_room_on_each_gpu(cluster: str) -> None:
    options, _, gpus = CLUSTERS[cluster]
    runtime, _, job = write(*options)
    spec = resolve(runtime, job)
    (pool,) = runtime["spec"]["nodePools"]
    (group,) = spec.cluster.workers
    assert group.accelerator
    assert group.replicas * group.accelerator.count == gpus
    memory = float(pool["accelerator"]["memory"].removesuffix("Gi")) * GIB
    trained = read_trained(spec)
    assert trained
    assert all(moment.bytes <= memory for moment in list_moments(spec, *trained, memory))
    share = cache_share(spec)
    assert share
    assert share >= CACHE_SHARE
    assert spec.training.train_batch_size % gpus == 0


def test_model_and_data_may_be_in_the_image() -> None:
    _, _, job = write("--model", "/models/Qwen3-8B", "--data", "/data/train.jsonl")
    assert job["spec"]["model"]["path"] == "/models/Qwen3-8B"


def test_model_and_data_may_be_in_a_bucket() -> None:
    runtime, _, job = write("--model", "s3://models/Qwen3-8B", "--data", "s3://data/train.jsonl")
    assert job["spec"]["model"]["path"] == "s3://models/Qwen3-8B"
    assert job["spec"]["data"]["files"] == ["s3://data/train.jsonl"]
    resolved = build_resolved_spec(job["spec"], runtime["spec"])
    assert [step["name"] for step in resolved["framework"]["prepare"]] == ["download-objects"]


@pytest.mark.parametrize(("model", "steps"), [("Qwen/Qwen3-8B", ["download-model"]), ("/mnt/rlt/models/Qwen3-8B", [])])
def test_the_operator_downloads_the_data_and_a_model_of_the_hub(model: str, steps: list[str]) -> None:
    runtime, _, job = write("--model", model)
    prepare = build_resolved_spec(job["spec"], runtime["spec"])["framework"]["prepare"]
    assert [step["name"] for step in prepare] == [*steps, "download-data"]


def test_experts_are_split_over_the_gpus_of_a_node() -> None:
    options, _, _ = CLUSTERS["30b-on-32-h100"]
    _, _, job = write(*options)
    assert job["spec"]["training"]["expertParallelSize"] == 8
    assert job["spec"]["rollout"]["tensorParallelSize"] == 2


def test_the_operator_accepts_the_job_on_such_nodes(tmp_path: Path) -> None:
    options, _, _ = CLUSTERS["30b-on-32-h100"]
    (tmp_path / "first.yaml").write_text(rlt("init", *options).stdout)
    node = {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}
    allocatable = {"nvidia.com/gpu": "8", "rdma/ib": "8", "cpu": "190", "memory": "1900Gi"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    nodes = [{"metadata": {**node, "name": f"gpu-{index}"}, "status": status} for index in range(4)]
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": nodes}))
    rendered = rlt("render", str(tmp_path / "first.yaml"), "--nodes", str(tmp_path / "nodes.yaml"))
    assert rendered.exit_code == 0, rendered.stderr
    (cluster,) = (each for each in yaml.safe_load_all(rendered.stdout) if each["kind"] == "RayCluster")
    (group,) = cluster["spec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"


@pytest.mark.parametrize("gpu", GPUS)
def test_each_kind_of_gpu_has_a_job(gpu: str) -> None:
    runtime, _, job = write("--model", "Qwen/Qwen3-0.6B", "--gpu", gpu, "--lora")
    assert resolve(runtime, job).cluster.image


def test_questions_have_defaults_and_the_answers_are_used() -> None:
    asked = rlt("init", "--ask", input="\nmi300x\n\n2\nmath\n\n")
    assert asked.exit_code == 0, asked.stderr
    assert asked.stdout == rlt("init", "--model", "Qwen/Qwen3-8B", "--gpu=mi300x", "--nodes=2", "--data=math").stdout
    assert "GPUs of a node [8]:" in asked.stderr


def test_what_does_not_fit_names_the_options_that_do() -> None:
    done = rlt("init", "--model", "Qwen/Qwen2.5-72B-Instruct")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no settings fit: spec.cluster.workers[0].accelerator.memory: 79Gi: one device needs" in done.stderr
    assert "It fits with --lora or --nodes 4." in done.stderr
    assert write("--model", "Qwen/Qwen2.5-72B-Instruct", "--nodes", "4")
    assert write("--model", "Qwen/Qwen2.5-72B-Instruct", "--lora")


def test_a_model_of_unknown_size_needs_parameters() -> None:
    done = rlt("init", "--model", "org/mine")
    assert done.exit_code == 1
    assert "give it with --parameters, such as --parameters 7B" in done.stderr
    _, _, job = write("--model", "org/mine", "--parameters", "7B")
    assert job["spec"]["model"] == {"path": "org/mine", "parameters": "7B"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--model", "a" * 5000], "error: spec.model.path: "),
        (["--model", "../etc; rm"], "error: spec.model.path: ../etc; rm: is neither an absolute path"),
        (["--model", "org/mine", "--parameters", "7Q"], 'error: spec.model.parameters: "7Q": must match'),
    ],
)
def test_an_invalid_model_is_named_before_settings_are_searched(options: list[str], error: str) -> None:
    done = rlt("init", *options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(error)


@pytest.mark.parametrize("options", [["dapo"], ["--kind", "runtime"], ["--runtime", "a"], ["--full"], ["--list"]])
def test_a_first_job_is_not_combined_with_an_example(options: list[str]) -> None:
    done = rlt("init", "--model", "Qwen/Qwen3-8B", *options)
    assert done.exit_code == 2
    assert "cannot be combined" in done.stderr


def test_other_options_need_a_model() -> None:
    assert "Missing option '--model'" in rlt("init", "--nodes", "2").stderr


def test_a_submission_has_the_volume_of_the_job(tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    file.write_text(rlt("init", "--model", "Qwen/Qwen3-8B").stdout)
    kinds = ["PersistentVolumeClaim", "RLRuntime", "RLTrainingJob"]
    assert [each["kind"] for each in load_valid_submission([str(file)])] == kinds
    file.write_text(
        file.read_text().replace("name: rlt-runs\nspec:\n  accessModes", "name: other\nspec:\n  accessModes")
    )
    assert [each["kind"] for each in load_valid_submission([str(file)])] == kinds[1:]


def test_a_volume_that_is_too_small_is_noted() -> None:
    text = rlt("init", "--model", "Qwen/Qwen3-8B").stdout.replace("storage: 380Gi", "storage: 100Gi")
    checked = rlt("validate", "-", input=text)
    assert checked.exit_code == 0
    assert "spec.resources.requests.storage: 100Gi: does not hold 14.2 GiB of model files + 255 GiB" in checked.stderr
    assert "use 298Gi or more, or a smaller checkpoint.maxToKeep: job qwen3-8b-grpo" in checked.stderr
    text = text.replace("name: rlt-runs\nspec:\n  accessModes", "name: other\nspec:\n  accessModes")
    assert "v1 PersistentVolumeClaim is not an rlt kind: not validated" in rlt("validate", "-", input=text).stderr
