"""rlt validate."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt_cli.file_validation import load_valid_submission
from rlt_cli.main import cli

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
OWN_KINDS = [path for path in sorted(EXAMPLES.rglob("*.yaml")) if path.parent.name != "volumes"]
"""The examples of rlt's own kinds."""

JOB = """\
apiVersion: rlt.dev/v1alpha1
kind: RLTrainingJob
metadata:
  name: sum
spec:
  model: {fromSeed: {seed: 0}}
  data: {preset: arithmetic}
  training:
    totalSteps: 3
    trainBatchSize: 8
  cluster:
    image: registry.example.com/trainer
    workers:
      - resources: {cpu: "1", memory: 4Gi}
"""
RUNTIME = """\
apiVersion: rlt.dev/v1alpha1
kind: RLRuntime
metadata: {name: cpu}
spec:
  images: {cpu: registry.example.com/trainer}
  nodePools: [{name: processors, resources: {cpu: "1", memory: 4Gi}}]
"""
SHORT_JOB = """\
apiVersion: rlt.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: short}
spec:
  runtimeRef: {name: cpu}
  model: {fromSeed: {seed: 0}}
  data: {preset: arithmetic}
  training: {totalSteps: 3, trainBatchSize: 8}
"""


def rlt(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["validate", *arguments], input=input)


def test_valid_manifests_are_counted() -> None:
    files = [str(path) for path in OWN_KINDS]
    done = rlt(*files)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"{len(files)} manifests are valid\n"


def test_a_finding_is_one_line_with_file_line_field_value_and_fix() -> None:
    done = rlt("-", input=JOB.replace("totalSteps", "totalStep"))
    assert done.exit_code == 1
    assert done.stdout == "-:9: spec.training.totalStep: totalStep: is not a field; did you mean totalSteps?\n"
    assert done.stderr == "1 of 1 manifest is invalid\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("text\n", "job.yaml:1: is not a manifest: not an object; write apiVersion, kind, …"),
        ("a: 1\nb: c: d\n", "job.yaml:2: column 5: is not YAML: mapping values are not allowed"),
        ("kind: List\nitems:\n- 1\n", "job.yaml:3: items[0]: is not a manifest: not an object; remove it"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_once(tmp_path: Path, content: str, line: str) -> None:
    (tmp_path / "job.yaml").write_text(content)
    printed = CliRunner().invoke(cli, ["validate", str(tmp_path / "job.yaml")]).stdout
    assert printed.startswith(f"{tmp_path}/{line}")


def test_json_has_these_keys_and_no_others() -> None:
    done = rlt("-", "-o", "json", input=JOB.replace("trainBatchSize: 8", "trainBatchSize: 0"))
    assert done.exit_code == 1
    (finding,) = json.loads(done.stdout)
    assert list(finding) == ["severity", "file", "line", "field", "value", "message", "fix", "rule", "edits"]
    assert finding["edits"] == [{"spec.training.trainBatchSize": 1}]
    assert (finding["file"], finding["field"], finding["value"]) == ("-", "spec.training.trainBatchSize", "0")


def test_notes_are_in_the_json_output() -> None:
    done = rlt("-", "-o", "json", input=JOB + "  failurePolicy:\n    maxRestarts: 3\n")
    assert done.exit_code == 0
    (note,) = json.loads(done.stdout)
    assert (note["severity"], note["file"], note["line"]) == ("note", "-", 16)
    assert note["message"].startswith("spec.failurePolicy.maxRestarts: 3: each attempt")


def test_the_items_of_a_list_are_validated() -> None:
    """The output of kubectl get -o yaml."""
    items = [yaml.safe_load(JOB), yaml.safe_load(JOB.replace("name: sum", "name: other").replace("8", "0"))]
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    done = rlt("-", input=text)
    assert done.exit_code == 1
    (line,) = done.stdout.splitlines()
    number = int(line.split(":")[1])
    assert "trainBatchSize: 0" in text.splitlines()[number - 1]
    assert done.stderr == "1 of 2 manifests is invalid\n"


def test_a_submission_has_no_fields_of_the_server(tmp_path: Path) -> None:
    job = yaml.safe_load(JOB)
    server = {"uid": "1", "resourceVersion": "2", "managedFields": [], "creationTimestamp": "x", "generation": 1}
    stored = {**job, "metadata": {**job["metadata"], **server}, "status": {"phase": "Running"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [stored]}))
    assert load_valid_submission([str(tmp_path / "job.yaml")]) == [job]


def test_the_files_of_a_directory_are_validated(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(JOB)
    (tmp_path / "b.yml").write_text(JOB.replace("name: sum", "name: other"))
    (tmp_path / "c.txt").write_text("no manifest")
    assert rlt(str(tmp_path)).stderr == rlt("-f", str(tmp_path)).stderr == "2 manifests are valid\n"
    (tmp_path / "empty").mkdir()
    assert "no file of type" in rlt(str(tmp_path / "empty")).stderr


def test_two_jobs_of_one_name_are_invalid() -> None:
    done = rlt("-", input=f"{JOB}---\n{JOB}")
    assert done.exit_code == 1
    assert "metadata.name: sum: is the name of another RLTrainingJob at -:1; use another name" in done.stdout


def test_a_generated_name_is_valid() -> None:
    done = rlt("-", input=JOB.replace("name: sum", "generateName: sum-"))
    assert (done.exit_code, done.stdout) == (0, ""), done.exception


def test_an_unknown_profile_is_invalid() -> None:
    done = rlt("-", input=JOB + "  network: {profile: onprem-infinband}\n")
    assert done.exit_code == 1
    assert "spec.network.profile: onprem-infinband: is not a network profile; did you mean onprem-infin" in done.stdout


@pytest.mark.parametrize(
    ("config", "fields", "expected"),
    [
        ({"model_type": "bert"}, "", "spec.model.path: {path}: models of type bert are not supported: its attention"),
        (
            {"model_type": "gpt_oss"},
            ", useRemovePadding: true",
            "spec.model.useRemovePadding: true: sequences of gpt_oss models are not packed: its attention has",
        ),
        (
            {"model_type": "qwen3_moe"},
            ", lora: {{rank: 4}}",
            "spec.model.lora.targetModules: all-linear: contains experts or routers of qwen3_moe models",
        ),
        ({"model_type": "qwen3_moe"}, ", useRemovePadding: true, lora: {{rank: 4, targetModules: [q_proj]}}", ""),
        (
            {"model_type": "qwen3_moe"},
            ", lora: {{rank: 4, targetModules: [q_proj], syncAdapters: true}}",
            "spec.model.lora.syncAdapters: true: does not work with models of type qwen3_moe: beside adapters, vLLM",
        ),
        ({"model_type": "qwen3"}, ", lora: {{rank: 4, syncAdapters: true}}", ""),
        (
            {"model_type": "glm4"},
            ", lora: {{rank: 4, syncAdapters: true}}",
            "spec.model.lora.syncAdapters: true: does not work with models of type glm4: vLLM takes gate_up_proj",
        ),
        ({"model_type": "glm4"}, ", lora: {{rank: 4, targetModules: [q_proj], syncAdapters: true}}", ""),
        ({"model_type": "bert", "auto_map": {}}, "", ""),  # custom code
        (
            {"model_type": "deepseek_v32"},
            "",
            "spec.rollout.engine: vllm: does not work with models of type deepseek_v32: vLLM has no sparse attention",
        ),
        (
            {"model_type": "gpt_oss"},
            "",
            "spec.rollout.engine: vllm: does not work with models of type gpt_oss: vLLM's reload of weights skips its",
        ),
    ],
)
def test_the_family_of_a_model_on_this_machine_is_validated(
    config: dict[str, object], fields: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = rlt("-", input=JOB.replace("{fromSeed: {seed: 0}}", f"{{path: {tmp_path}{fields.format()}}}"))
    assert done.exit_code == (1 if expected else 0), done.output
    assert expected.format(path=tmp_path) in done.stdout


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "qwen3_moe", "num_experts": 64}, ""),
        ({"model_type": "qwen3_moe", "num_experts": 6}, "4: does not divide the 6 experts of a layer; use 2"),
        ({"model_type": "glm4_moe", "n_routed_experts": 6}, "4: does not divide the 6 experts of a layer; use 2"),
        ({"model_type": "deepseek_v3"}, ""),
        (
            {"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text", "num_experts": 6}},
            "4: does not divide the 6 experts of a layer; use 2",
        ),
        (
            {"model_type": "mixtral"},
            "4: the experts of mixtral models are not split, only the experts of deepseek_v3",
        ),
    ],
)
def test_experts_are_split_for_families_and_numbers_that_fit(
    config: dict[str, object], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    job = JOB.replace("{fromSeed: {seed: 0}}", f"{{path: {tmp_path}}}")
    job = job.replace("  training:\n", "  training:\n    expertParallelSize: 4\n")
    done = rlt("-", input=job.replace("- resources", "- replicas: 4\n        resources"))
    assert done.exit_code == (1 if expected else 0), done.output
    assert not expected or f"spec.training.expertParallelSize: {expected}" in done.stdout


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("glm4_moe", ""),
        ("qwen3_moe", "0.001: the routers of qwen3_moe models have no correction bias,"),
    ],
)
def test_the_bias_of_a_router_is_updated_for_families_that_have_one(
    model_type: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    job = JOB.replace("{fromSeed: {seed: 0}}", f"{{path: {tmp_path}}}")
    done = rlt("-", input=job.replace("  training:\n", "  algorithm: {routerBiasUpdateRate: 0.001}\n  training:\n"))
    assert done.exit_code == (1 if expected else 0), done.output
    assert not expected or f"spec.algorithm.routerBiasUpdateRate: {expected}" in done.stdout


def test_an_unknown_pool_of_the_runtime_is_invalid() -> None:
    job = SHORT_JOB + "  cluster: {workers: [{pool: gpus}]}\n"
    done = rlt("-", input=f"{job}---\n{RUNTIME}")
    assert "spec.cluster.workers[0].pool: gpus: is not a node pool of the runtime; use one of processors" in done.stdout


def test_a_missing_runtime_file_suggests_no_command_that_overwrites(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    done = rlt(str(tmp_path / "job.yaml"), "--runtime", str(tmp_path / "nosuch"))
    assert done.exit_code == 1
    assert f"next: ls -l {tmp_path}" in done.stderr
    assert ">" not in done.stderr


def test_without_findings_json_is_an_empty_list() -> None:
    assert json.loads(rlt("-", "-o", "json", input=JOB).stdout) == []
    assert yaml.safe_load(rlt("-", "-o", "yaml", input=JOB).stdout) == []


def test_empty_documents_between_manifests_are_skipped() -> None:
    done = rlt("-", input=f"---\n{JOB}---\n---\n{JOB.replace('name: sum', 'name: Sum')}---\nspec: [\n")
    fields = [line.split(": ")[1] for line in done.stdout.splitlines()]
    assert fields == ["metadata.name", "column 1"]
    assert done.stderr == "2 of 3 manifests are invalid\n"


def test_a_runtime_after_its_job_in_the_same_file_is_used() -> None:
    limited = RUNTIME + "  limits: [{field: spec.training.totalSteps, max: 2}]\n"
    done = rlt("-", input=f"{SHORT_JOB}---\n{limited}")
    assert done.exit_code == 1
    assert "-:8: spec.training.totalSteps: 3: " in done.stdout


def test_a_runtime_can_be_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "runtime.yaml").write_text(RUNTIME)
    done = rlt("-", "--runtime", str(tmp_path / "runtime.yaml"), input=SHORT_JOB)
    assert (done.exit_code, done.stderr) == (0, "2 manifests are valid\n")


def test_a_missing_runtime_prints_a_note() -> None:
    done = rlt("-", input=SHORT_JOB)
    assert done.exit_code == 0
    assert done.stderr.splitlines()[0] == (
        "note: -:5: runtime cpu is not in the given files: rules that need it were not applied; "
        "pass it with --runtime FILE"
    )


def test_an_invalid_runtime_is_a_finding_and_is_not_used() -> None:
    done = rlt("-", input=f"{SHORT_JOB}---\n{RUNTIME.replace('images', 'image')}")
    assert done.exit_code == 1
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["spec.image"]
    assert "runtime cpu is not in the given files" in done.stderr


def test_an_unquoted_n_is_reported_as_a_boolean_key() -> None:
    done = rlt("-", input=JOB + "  rollout:\n    n: 8\n")
    assert done.exit_code == 1
    assert '-:16: spec.rollout.n: n: is false in YAML, not a string; write it in quotes: "n"\n' in done.stdout


def test_restarts_without_a_checkpoint_print_a_note() -> None:
    done = rlt("-", input=JOB + "  failurePolicy:\n    maxRestarts: 3\n")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "note: -:16: spec.failurePolicy.maxRestarts: 3: each attempt starts from step 0, because "
        "checkpoint.saveFreq is -1; set checkpoint.saveFreq to 1 or more",
        "1 manifest is valid",
    ]


def test_an_invalid_job_has_notes_as_well() -> None:
    more = "  failurePolicy: {maxRestarts: 3}\n  checkpoint: {saveFreq: 1}\n"
    done = rlt("-", input=JOB.replace("trainBatchSize: 8", "trainBatchSize: 8\n    ppoMiniBatchSize: 3") + more)
    assert done.exit_code == 1
    assert "spec.training.ppoMiniBatchSize: 3" in done.stdout
    assert "note: -:16: spec.failurePolicy.maxRestarts: 3: each attempt" in done.stderr


def test_manifests_of_other_apis_are_not_validated() -> None:
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\n"
    done = rlt("-", input=f"{claim}---\n{JOB}")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "note: -:1: v1 PersistentVolumeClaim is not an rlt kind: not validated or submitted",
        "1 manifest is valid",
    ]


@pytest.mark.parametrize("kind", ["RLTraningJob", "rltrainingjob"])
def test_a_misspelled_kind_is_a_finding(kind: str) -> None:
    done = rlt("-", input=JOB.replace("RLTrainingJob", kind).replace("rlt.dev/v1alpha1", "rtl.dev/v1"))
    assert done.exit_code == 1
    assert "use RLTrainingJob" in done.stdout


@pytest.mark.parametrize(("file", "message"), [("/nowhere.yaml", "/nowhere.yaml: No such file"), ("-", "-: no ")])
def test_no_manifest_is_an_error_with_the_next_command(file: str, message: str) -> None:
    done = rlt(file, input="")
    assert (done.exit_code, done.stdout) == (1, "")
    error, following = done.stderr.splitlines()
    assert error.startswith(f"error: {message}")
    assert following.startswith("next: ")


@pytest.mark.parametrize(
    "spec",
    ["{runtimeRef: {name: [a]}}", "{runtimeRef: 3}", "{cluster: {workers: {}}}", "{training: {totalSteps: 1e400}}"],
)
def test_a_value_of_the_wrong_type_is_a_finding(spec: str) -> None:
    done = rlt("-", input=f"apiVersion: rlt.dev/v1alpha1\nkind: RLTrainingJob\nmetadata: {{name: a}}\nspec: {spec}\n")
    assert done.exit_code == 1, done.exception
    assert done.stdout.startswith("-:4: spec.")


FOLDERS = ("docs", "charts", "examples", "images")
DOCUMENTS = [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.md")))]


def rlt_manifests(path: Path) -> list[str]:
    """The rlt manifests in a document."""
    blocks = re.findall(r"^```ya?ml\n(.*?)^```", path.read_text(), re.S | re.M)
    return [block for block in blocks if re.search(r"^kind: RL", block, re.M)]


@pytest.mark.parametrize("path", [each for each in DOCUMENTS if rlt_manifests(each)], ids=lambda path: path.name)
def test_manifests_in_documents_are_valid(path: Path) -> None:
    runtimes = [str(file) for file in (EXAMPLES / "runtimes").glob("*.yaml")]
    done = rlt("-", *runtimes, input="---\n".join(rlt_manifests(path)))
    assert (done.exit_code, done.stdout) == (0, "")


def test_the_readme_shows_a_manifest() -> None:
    assert rlt_manifests(ROOT / "README.md")


@pytest.mark.parametrize("path", OWN_KINDS, ids=lambda path: path.name)
def test_examples_name_their_schema_for_editors(path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    schema = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert schema
    kind = yaml.safe_load(path.read_text())["kind"]
    assert json.loads((path.parent / schema[1]).read_text())["title"] == kind


def test_the_default_runtime_completes_a_job(tmp_path: Path) -> None:
    """--default-runtime is the label of the namespace; --runtime has the runtime."""
    example = yaml.safe_load((EXAMPLES / "03-with-a-runtime.yaml").read_text())
    del example["spec"]["runtimeRef"]
    job = tmp_path / "job.yaml"
    runtime = str(EXAMPLES / "runtimes/cpu.yaml")
    job.write_text(yaml.safe_dump(example))
    without = CliRunner().invoke(cli, ["validate", str(job), "--runtime", runtime])
    assert without.exit_code == 1
    assert "spec.cluster.image: none: is required" in without.stdout
    complete = CliRunner().invoke(cli, ["validate", str(job), "--runtime", runtime, "--default-runtime", "cpu"])
    assert (complete.exit_code, complete.stdout) == (0, "")
    unknown = CliRunner().invoke(cli, ["validate", str(job), "--default-runtime", "cpu"])
    assert unknown.exit_code == 0
    assert "runtime cpu is not in the given files" in unknown.stderr
    rendered = CliRunner().invoke(cli, ["render", str(job), "--runtime", runtime, "--default-runtime", "cpu"])
    assert "image: localhost/rlt-trainer:cpu" in rendered.stdout


def test_a_chat_template_that_is_not_valid_is_reported_with_its_line(tmp_path: Path) -> None:
    template = "{% for message in messages %}\\n{{ message.content }\\n{% endfor %}"
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("{preset: arithmetic}", f'{{preset: arithmetic, chatTemplate: "{template}"}}'))
    done = rlt(str(job))
    assert done.exit_code == 1
    line = "spec.data.chatTemplate: line 2: {{ message.content }: is not valid Jinja: unexpected '}'; correct the line"
    assert f"{job}:7: {line}" in done.output
    job.write_text(job.read_text().replace("content }", "content }}"))
    assert rlt(str(job)).exit_code == 0


def test_the_chat_template_in_verls_arguments_and_a_local_model_is_tested(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("Hello")
    job = yaml.safe_load(JOB)
    job["spec"]["model"] = {"path": str(tmp_path)}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    done = rlt(str(tmp_path / "job.yaml"))
    assert done.exit_code == 0
    assert "its chat template, line 1, does not render a message of a user" in done.output
    argument = "actor_rollout_ref.model.custom_chat_template='{% if %}'"
    command = {"type": "command", "command": ["python3", "-m", "verl.trainer.main_ppo", argument]}
    spec = {"framework": command, "cluster": job["spec"]["cluster"]}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**job, "spec": spec}))
    done = rlt(str(tmp_path / "job.yaml"))
    assert done.exit_code == 1
    assert "spec.framework.command[3]: line 1: {% if %}: is not valid Jinja" in done.output
