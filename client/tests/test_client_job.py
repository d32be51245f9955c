"""Jobs built in Python: their manifests, findings, rendered children, and the import of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pydantic.alias_generators import to_camel

from rlt import Job, blocks
from rlt.blocks import Accelerator, Cluster, Data, Lora, Model, Resources, Reward, Rollout, Training, WorkerGroup
from rlt.errors import InvalidBlockError, InvalidJobError, JobFailedError, RltError
from rlt.job import Blocks
from rlt.manifest_files import Document
from rlt.validation import validate_documents
from rlt_api.model import ApiModel
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_cli.main import cli

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/01-arithmetic-grpo.yaml"
GPUS = Accelerator(resource_name="nvidia.com/gpu", count=8)
WORKERS = WorkerGroup(replicas=2, accelerator=GPUS, resources=Resources(cpu="32", memory="512Gi"))


MODELS = [getattr(blocks, name) for name in blocks.__all__]


def build(**changes: Any) -> Job:
    fields: dict[str, Any] = {
        "model": Model(path="Qwen/Qwen3-8B", lora=Lora(rank=16)),
        "data": Data(preset="gsm8k", path="/mnt/rlt/gsm8k"),
        "training": Training(total_steps=100, train_batch_size=256),
        "rollout": Rollout(responses_per_prompt=8),
        "cluster": Cluster(image="rlt-trainer:1", workers=[WORKERS]),
        "storage": {"claimName": "runs"},
    }
    return Job("sums", labels={"team": "a"}, **{**fields, **changes})


def test_the_manifest_contains_the_given_fields_alone() -> None:
    manifest = build().manifest
    assert manifest["metadata"] == {"name": "sums", "labels": {"team": "a"}}
    assert manifest["spec"]["model"] == {"path": "Qwen/Qwen3-8B", "lora": {"rank": 16}}
    assert manifest["spec"]["training"] == {"totalSteps": 100, "trainBatchSize": 256}
    assert manifest["spec"]["cluster"]["workers"] == [
        {
            "replicas": 2,
            "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
            "resources": {"cpu": "32", "memory": "512Gi"},
        }
    ]


def test_lists_of_objects_and_json_can_be_mixed() -> None:
    job = build(rewards=[Reward(name="exact"), {"name": "length", "weight": 0.1}])
    assert job.manifest["spec"]["rewards"] == [{"name": "exact"}, {"name": "length", "weight": 0.1}]


def test_a_job_is_valid_and_renders_the_children_of_the_command_line(tmp_path: Path) -> None:
    job = build()
    assert job.validate() == ()
    (tmp_path / "job.yaml").write_text(job.to_yaml())
    printed = CliRunner().invoke(cli, ["render", str(tmp_path / "job.yaml")])
    assert list(yaml.safe_load_all(printed.stdout)) == job.render()


def test_the_findings_equal_the_command_lines(tmp_path: Path) -> None:
    job = build(training=Training(train_batch_size=30, total_steps=1), rollout={"responsesPerPrompts": 8})
    (tmp_path / "job.yaml").write_text(job.to_yaml())
    printed = CliRunner().invoke(cli, ["validate", str(tmp_path / "job.yaml")]).stdout
    lines = [line.split(": ", 1)[1] for line in printed.splitlines()]  # in the file's order
    assert sorted(lines) == sorted(str(each) for each in job.validate())
    assert len(lines) == 2
    with pytest.raises(InvalidJobError, match="responsesPerPrompts") as raised:
        job.render()
    assert raised.value.findings == job.validate()


def test_an_unknown_keyword_is_rejected_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match="no field trainning: use training"):
        build(trainning={})


@pytest.mark.parametrize(
    ("build_block", "expected"),
    [
        (lambda: Training(**{"total_step": 2}), "Training.total_step: is not a field; did you mean total_steps?"),
        (lambda: Rollout(top_p=2), "Rollout.top_p: 2 should be less than or equal to 1"),
        (lambda: Accelerator(**{"count": 2}), "Accelerator.resource_name: Field required"),
        (lambda: Cluster(**{"workers": [{"replicas": "x"}]}), "Cluster.workers[0].replicas"),
    ],
)
def test_an_invalid_block_is_an_error_with_the_names_in_python(
    build_block: Callable[[], object], expected: str
) -> None:
    with pytest.raises(InvalidBlockError) as raised:
        build_block()
    assert raised.value.message.startswith(expected)
    assert raised.value.next.startswith("help(")


def test_fields_have_the_names_of_the_api_in_snake_case() -> None:
    names = {f"{model.__name__}.{name}": field.alias for model in MODELS for name, field in model.model_fields.items()}
    assert {path: alias for path, alias in names.items() if to_camel(path.partition(".")[2]) != alias} == {}


def test_packages_are_typed() -> None:
    packages = {path.parent for path in ROOT.glob("*/rlt*/__init__.py")}
    assert len(packages) > 7
    assert {package.name for package in packages if not (package / "py.typed").is_file()} == set()


@pytest.mark.slow
def test_type_checkers_check_the_fields_of_blocks(tmp_path: Path) -> None:
    """Without pydantic's plugin for mypy, as in most projects of users."""
    (tmp_path / "job.py").write_text(
        "from rlt.blocks import Training\nTraining(total_step=1)\nTraining(total_steps='x')\n"
    )
    folders = [str(package.parent) for package in ROOT.glob("*/rlt*") if (package / "py.typed").is_file()]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(folders)}
    options = ["--config-file=", f"--cache-dir={tmp_path}/cache", "--follow-imports=silent"]
    command = [sys.executable, "-m", "mypy", *options, str(tmp_path / "job.py")]
    printed = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "[call-arg]" in printed
    assert "[arg-type]" in printed


def test_every_field_and_type_of_the_spec_is_available() -> None:
    assert set(Blocks.__annotations__) == set(RLTrainingJobSpec.model_fields)
    assert find_models(RLTrainingJobSpec) <= {getattr(blocks, name) for name in blocks.__all__}


def find_models(annotation: Any) -> set[type[ApiModel]]:
    """The models that a type contains."""
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        inner = [find_models(field.annotation) for field in annotation.model_fields.values()]
        return {annotation}.union(*inner)
    return set[type[ApiModel]]().union(*(find_models(each) for each in getattr(annotation, "__args__", ())))


def test_a_file_gives_its_manifest_and_its_runtimes() -> None:
    job = Job.from_file(EXAMPLE)
    assert job.manifest == yaml.safe_load(EXAMPLE.read_text())
    assert (job.name, job.namespace, job.runtimes) == ("arithmetic-grpo", None, ())
    assert job.spec.rollout.responses_per_prompt == 8
    assert (job.phase, job.has_ended) == ("Pending", False)
    assert repr(job) == "<Job arithmetic-grpo: not submitted>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("kind: Pod", "contains 0 RLTrainingJobs"),
        ("kind: RLTrainingJob\n---\n" * 2, "contains 2 RL"),
    ],
)
def test_a_text_without_one_job_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InvalidJobError, match=message) as raised:
        Job.from_yaml(text)
    assert raised.value.next == "rlt validate job.yaml"


def test_a_missing_runtime_is_named() -> None:
    job = build(runtime_ref={"name": "gpus"})
    with pytest.raises(InvalidJobError, match=r"spec\.runtimeRef\.name: gpus") as raised:
        job.render()
    assert raised.value.next == "kubectl get rlruntime gpus -o yaml"


def run_command(tmp_path: Path, script: str) -> Job:
    workers = [{"resources": {"cpu": "1", "memory": "1Gi"}}]
    command = {"type": "command", "command": [sys.executable, "-c", script]}
    return Job("echo", framework=command, cluster={"image": "i", "workers": workers})


def test_a_local_run_returns_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_command(tmp_path, "print('step:1 - critic/score/mean:0.5')").local_run(tmp_path)
    assert "step:1 - critic/score/mean:0.5\n" in result.output
    assert capsys.readouterr().out == result.output
    assert result.metrics()["critic/score/mean"].tolist() == [0.5]


def test_a_local_run_that_fails_raises_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"exited with code 3(?s:.*)no data"):
        run_command(tmp_path, "print('no data'); raise SystemExit(3)").local_run(tmp_path, echo=False)


def test_errors_show_the_advice() -> None:
    assert str(RltError("Job a does not exist.", next="rlt get")) == "Job a does not exist.\nnext: rlt get"


def test_the_import_loads_no_other_package() -> None:
    script = "import sys; from rlt import Job; Job.from_manifest({'metadata': {}}); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in eval(done.stdout)}
    assert not loaded & {"kubernetes", "aiohttp", "pandas", "polars", "pydantic", "yaml", "rlt_core", "rlt_api"}


def test_a_note_about_a_runtime_of_the_cluster_names_no_option() -> None:
    manifest = {
        "apiVersion": "rlt.dev/v1alpha1",
        "kind": "RLTrainingJob",
        "metadata": {"name": "a"},
        "spec": {"runtimeRef": {"name": "h100"}},
    }
    document = Document("job.yaml", 1, manifest, {})
    (note,) = validate_documents([document], RuntimePolicy(unknown=True)).notes
    assert note.message.endswith("rules that need it were not applied here; the cluster applies them")
