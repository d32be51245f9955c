"""rlt render."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt.offline_job import DEFAULT_ACCESS, PLACEHOLDER_UID, build_offline_job, detect_network, place_earlier_checkpoint
from rlt.validation import validate_files
from rlt_api.spec.training_config import TrainingConfig
from rlt_cli.main import cli
from rlt_core.children.disruption_budget import build_disruption_budgets
from rlt_operator.lifecycle.admission import CREATED_LATER, cluster_missing
from rlt_operator.observation import Observed

EXAMPLES = Path(__file__).parents[2] / "examples"
RUNTIME = str(EXAMPLES / "runtimes/cpu.yaml")


def rlt(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["render", *arguments], input=input)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_render_prints_what_the_operator_creates(path: Path) -> None:
    validated = validate_files([str(path), RUNTIME])
    (manifest,) = validated.jobs()
    job = place_earlier_checkpoint(detect_network(build_offline_job(manifest, validated), ()))
    assert job.spec
    verdict = cluster_missing(Observed(job, access=DEFAULT_ACCESS), job.spec, datetime.now(UTC))
    assert verdict
    done = rlt(str(path), "--runtime", RUNTIME)
    assert done.exit_code == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    assert [each for each in rendered if each["kind"] != CREATED_LATER] == list(verdict.apply)
    later = [each for each in rendered if each["kind"] == CREATED_LATER]
    assert later == list(build_disruption_budgets(job, job.spec))


def test_the_trainer_config_is_a_yaml_block() -> None:
    done = rlt(str(EXAMPLES / "01-arithmetic-grpo.yaml"))
    assert "  training.json: |-\n    {\n" in done.stdout
    config = TrainingConfig.model_validate_json(next(yaml.safe_load_all(done.stdout))["data"]["training.json"])
    assert config.rollout.responses_per_prompt == 8
    assert config.run_directory.endswith(f"arithmetic-grpo-{PLACEHOLDER_UID[:8]}")


def test_the_steps_before_the_program_are_notes() -> None:
    done = rlt(str(EXAMPLES / "09-verl-command.yaml"))
    assert "note: verl-gsm8k: step gsm8k runs before: python3 /opt/verl/examples/data_preprocess" in done.stderr


def test_the_path_of_another_jobs_checkpoint_is_a_placeholder() -> None:
    path = EXAMPLES / "26-resume-from-another-job.yaml"
    done = rlt(str(path))
    config = TrainingConfig.model_validate_json(next(yaml.safe_load_all(done.stdout))["data"]["training.json"])
    assert config.checkpoint.resume_from_path == "/mnt/rlt/runs/arithmetic-grpo-00000000/checkpoints/step-0"
    assert "the path of arithmetic-grpo's checkpoint is a placeholder" in done.stderr


def test_json_output_is_a_list_for_kubectl() -> None:
    done = rlt(str(EXAMPLES / "03-with-a-runtime.yaml"), "--runtime", RUNTIME, "-n", "team", "-o", "json")
    answer = json.loads(done.stdout)
    assert (answer["apiVersion"], answer["kind"]) == ("v1", "List")
    kinds = [item["kind"] for item in answer["items"]]
    assert kinds == ["ConfigMap", "PodDisruptionBudget", "Secret", "NetworkPolicy", "RayCluster"]
    assert {item["metadata"]["namespace"] for item in answer["items"]} == {"team"}


def test_the_secret_has_no_token() -> None:
    manifests = list(yaml.safe_load_all(rlt(str(EXAMPLES / "01-arithmetic-grpo.yaml")).stdout))
    (secret,) = [manifest for manifest in manifests if manifest["kind"] == "Secret"]
    assert not {"data", "stringData"} & secret.keys()


def test_a_job_that_the_operator_would_hold_is_not_rendered(tmp_path: Path) -> None:
    job = (EXAMPLES / "01-arithmetic-grpo.yaml").read_text() + "  network: {require: rdma}\n"
    nodes = tmp_path / "nodes.yaml"
    node = {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    nodes.write_text(yaml.safe_dump({"items": [node]}))
    done = rlt("-", "--nodes", str(nodes), input=job)
    assert (done.exit_code, done.stdout.strip()) == (1, "")
    assert "arithmetic-grpo: the operator holds this job: RdmaNotFound: " in done.stderr


@pytest.mark.parametrize("content", ["", "no nodes", "{}", "[1]", "\x00"])
def test_a_file_without_nodes_is_rejected(tmp_path: Path, content: str) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(content)
    done = rlt(str(EXAMPLES / "01-arithmetic-grpo.yaml"), "--nodes", str(nodes))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "next: kubectl get nodes -o yaml"


def test_a_job_with_a_generated_name_is_rendered() -> None:
    text = (EXAMPLES / "01-arithmetic-grpo.yaml").read_text().replace("  name: arithmetic-grpo", "  generateName: sum-")
    assert "name: sum-xxxxx" in rlt("-", input=text).stdout


def test_an_invalid_job_is_rejected() -> None:
    done = rlt("-", input=(EXAMPLES / "01-arithmetic-grpo.yaml").read_text().replace("totalSteps", "steps"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "-:28: spec.training.steps: steps: is not a field" in done.stderr


def test_a_job_whose_runtime_is_missing_is_rejected() -> None:
    done = rlt(str(EXAMPLES / "03-with-a-runtime.yaml"))
    assert (done.exit_code, done.stdout) == (1, "")
    error, following = done.stderr.splitlines()[-2:]
    assert "spec.runtimeRef.name: cpu is not in the given files: pass it with --runtime FILE" in error
    assert following == "next: kubectl get rlruntime cpu -o yaml > cpu.yaml"


def test_the_command_of_roll_is_printed_with_its_config() -> None:
    line, config = rlt("--command", str(EXAMPLES / "10-roll.yaml")).stdout.split("\n\n# /etc/rlt/roll.yaml\n")
    assert shlex.split(line)[-2:] == ["python3", "examples/start_rlvr_pipeline.py"]
    assert yaml.safe_load(config)["actor_infer"]["device_mapping"] == "list(range(0,8))"


def test_the_command_of_verl_is_printed_for_a_shell() -> None:
    done = rlt("--command", str(EXAMPLES / "07-verl.yaml"), "-n", "team")
    lines = done.stdout.splitlines()
    assert lines[0] == "python3 -m verl.trainer.main_ppo \\"
    assert "  trainer.nnodes=2 \\" in lines
    assert shlex.split(done.stdout)[-1] == "actor_rollout_ref.actor.shuffle=true"
