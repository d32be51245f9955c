"""rlt explain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlt_api.schema.model_schema import walk_leaves
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_cli.commands.explain import format_page
from rlt_cli.field_guide import complete_path, find_field
from rlt_cli.main import cli

ROOT = Path(__file__).parents[2]


def rlt(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *arguments])


def test_explain_prints_everything_about_a_field() -> None:
    assert rlt("spec.rollout.topP").stdout.splitlines()[:7] == [
        "RLTrainingJob  spec.rollout.topP",
        "",
        "Nucleus sampling: total probability of the most probable tokens that are sampled from.",
        "",
        "type               number",
        "default            1.0",
        "bounds             > 0, <= 1",
    ]


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ("spec.rollout.topP", "spec.rollout.topP"),
        ("rollout.topP", "spec.rollout.topP"),
        ("top_p", "spec.rollout.topP"),
        ("rltrainingjob.spec.rollout", "spec.rollout"),
        ("RLTrainingJob", "spec"),
        (".spec.rollout.topP", "spec.rollout.topP"),
        ("rltj.spec.rollout", "spec.rollout"),
        ("rltr.spec.nodePools", "spec.nodePools"),
        ("cluster.workers[0].replicas", "spec.cluster.workers[].replicas"),
        ("cluster.workers.replicas", "spec.cluster.workers[].replicas"),
        ("rlruntime.spec.limits", "spec.limits"),
        ("nodePools", "spec.nodePools"),
        ("rollout.n", "spec.rollout.responsesPerPrompt"),
        ("actor_rollout_ref.rollout.top_p", "spec.rollout.topP"),
        ("custom_reward_function.path", "spec.rewards[].function.configMap"),
        ("status", "status"),
        ("rltrainingjob.status.progress.step", "status.progress.step"),
        ("status.attempts[0].reason", "status.attempts[].reason"),
    ],
)
def test_a_field_is_found_by_path_end_or_other_name(typed: str, field: str) -> None:
    assert find_field(typed).path == field


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("spec.rolout.topP", "Field spec.rolout.topP does not exist; did you mean spec.rollout.topP"),
        ("klLosCoef", "did you mean spec.algorithm.klLossCoef"),
        ("nodeSelector", "is ambiguous: spec.rollout.multiTurn.sandbox.nodeSelector, spec.cluster.head.nodeSelector, "),
        ("learning", "did you mean spec.training.learningRate"),
        ("xyzzy", "Field xyzzy does not exist."),
        ("status.progresx", "Field status.progresx does not exist; did you mean status.progress"),
        ("data.tokenizer", "No field corresponds to data.tokenizer: "),
        ("reward.custom_reward_function", "is ambiguous: spec.rewards[].function.configMap, spec.rewards[].function"),
    ],
)
def test_an_unknown_field_is_an_error_with_suggestions(typed: str, message: str) -> None:
    done = rlt(typed)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr
    assert done.stderr.splitlines()[-1] == "next: rlt explain"


def test_without_a_field_the_blocks_are_listed() -> None:
    listed = [line.split()[0] for line in rlt().stdout.partition("FIELD")[2].splitlines()[1:]]
    assert set(listed) == {field.alias or name for name, field in RLTrainingJobSpec.model_fields.items()}


def test_json_names_the_rules_that_mention_the_field() -> None:
    loss = json.loads(rlt("algorithm.klLossType", "-o", "json").stdout)
    batch = json.loads(rlt("trainBatchSize", "-o", "json").stdout)
    assert loss["default"] == "low_var_kl"
    assert "actor_rollout_ref.actor.kl_loss_type" in loss["elsewhere"]["verl"]
    assert any("ppoMiniBatchSize must divide trainBatchSize" in rule for rule in batch["rules"])


@pytest.mark.parametrize("path", [path for path, _ in walk_leaves(RLTrainingJobSpec)])
def test_every_field_is_found_and_has_type_and_description(path: str) -> None:
    field = find_field(path)
    assert field.path == path
    assert field.description
    assert field.type != "any"


def test_the_json_schema_equals_the_committed_file() -> None:
    for kind in ("rltrainingjob", "rlruntime"):
        committed = json.loads((ROOT / f"crds/schema/{kind}.json").read_text())
        assert json.loads(rlt("--json-schema", kind).stdout) == committed


@pytest.mark.parametrize(
    ("start", "completed"),
    [
        ("s", ["spec", "status", "scheduling", "storage", "security", "suspend"]),
        ("spec.rollout.top", ["spec.rollout.topP", "spec.rollout.topK"]),
        ("cluster.workers.acc", ["cluster.workers.accelerator"]),
        ("status.pro", ["status.progress"]),
        ("no.such.block", []),
    ],
)
def test_the_shell_completes_the_next_part_of_a_path(start: str, completed: list[str]) -> None:
    assert sorted(complete_path(start)) == sorted(completed)


def test_descriptions_fill_the_width_of_the_terminal() -> None:
    for columns in (80, 160):
        lines = format_page(find_field("rollout"), columns).splitlines()
        assert columns - 20 < max(map(len, lines)) <= columns
