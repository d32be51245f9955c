"""Conversion to framework.type verl and roll: each setting is a field or an override, and no draft is an error."""

from __future__ import annotations

import contextlib
from copy import deepcopy
from typing import Any

import pytest
import yaml
from test_convert_yaml import OTHER_TYPES, SOURCES, list_paths, read, select, strip_lines, write

from rlt.convert.convert import Target, convert
from rlt.convert.draft import ConvertError, Draft
from rlt.convert.missing import list_missing
from rlt.convert.roll_job import CARRIED, OF_THE_RUN
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

SBATCH = """\
#SBATCH --nodes=4
#SBATCH --cpus-per-task=64
#SBATCH --mem={memory}
python3 -m verl.trainer.main_ppo data.train_files="$DATA/train.parquet" data.val_files=/d/test.parquet \\
  actor_rollout_ref.model.path=/m/q data.train_batch_size=512 actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
  actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480 \\
  actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=30720 trainer.nnodes=4 trainer.n_gpus_per_node=8 \\
  trainer.total_epochs=10 trainer.total_training_steps=200 {more}
"""
RLVR = [name for name in SOURCES if name.startswith("roll-rlvr-") and name != "roll-rlvr-vl"]


def convert_sbatch(memory: str = "900G", more: str = "") -> tuple[Draft, list[str]]:
    converted = convert(SBATCH.format(memory=memory, more=more), "run.sh", "verl")
    return Draft(spec=converted.manifest["spec"]), [str(each) for each in converted.left_out]


def test_settings_that_share_a_field_keep_it() -> None:
    draft, _ = convert_sbatch()
    assert draft.get("training.ppoMaxTokenLenPerDevice") == 20480
    assert "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=30720" in draft.get("framework.overrides")


def test_steps_are_a_field_and_epochs_an_override() -> None:
    draft, _ = convert_sbatch()
    assert (draft.get("training.totalSteps"), draft.get("training.totalEpochs")) == (200, None)
    assert "trainer.total_epochs=10" in draft.get("framework.overrides")
    assert not any("cannot be combined" in str(each) for each in list_missing({**MANIFEST, "spec": draft.spec}))


MANIFEST = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "a"}}


def test_an_unknown_file_is_filled_in_and_not_verls_default() -> None:
    draft, notes = convert_sbatch()
    assert draft.get("data.files") is None
    assert any("data.train_files=$DATA/train.parquet" in note for note in notes)
    assert any(each.field == "spec.data" for each in list_missing({**MANIFEST, "spec": draft.spec}))


def test_an_incomplete_pod_is_filled_in() -> None:
    draft, _ = convert_sbatch(memory="0")
    assert draft.get("cluster.workers[].resources") in ({"cpu": "64"}, None)
    assert draft.get("cluster.workers[].accelerator") == {"resourceName": "nvidia.com/gpu", "count": 8}
    missing = {each.field for each in list_missing({**MANIFEST, "spec": draft.spec})}
    assert {"spec.cluster.image", "spec.cluster.workers[0].resources.memory", "spec.data"} <= missing


@pytest.mark.parametrize("to", ["verl", "builtin"])
@pytest.mark.parametrize("value", ["-1", "abc", "[1,2]", "null", "1e99", "''", "{a: 1}"])
@pytest.mark.parametrize(
    "key",
    [
        "actor_rollout_ref.rollout.temperature", "actor_rollout_ref.rollout.n", "trainer.nnodes",
        "trainer.total_training_steps", "actor_rollout_ref.model.path", "data.train_batch_size",
        "actor_rollout_ref.model.lora_rank", "algorithm.adv_estimator",
    ],
)  # fmt: skip
def test_an_invalid_value_of_a_command_does_not_crash(key: str, value: str, to: Target) -> None:
    with contextlib.suppress(ConvertError):
        convert(SBATCH.format(memory="1G", more=f'{key}="{value}"'), "run.sh", to)


@pytest.mark.parametrize("name", RLVR)
def test_an_override_is_written_once_and_no_field_could_replace_it(name: str) -> None:
    spec = convert(SOURCES[name], "source.yaml", "roll").manifest["spec"]
    keys = [each.partition("=")[0] for each in spec["framework"]["overrides"]]
    assert len(keys) == len(set(keys))
    resolved = validate_job("a", spec).spec
    assert resolved
    assert [each for each in find_warnings(resolved) if "use that field" in each] == []


@pytest.mark.parametrize("to", ["roll", "builtin"])
@pytest.mark.parametrize("name", RLVR)
def test_each_setting_of_the_run_is_carried_over_or_named(name: str, to: Target) -> None:
    converted = convert(SOURCES[name], "source.yaml", to)
    comments = "\n".join(each.what for each in converted.left_out)
    keys = OF_THE_RUN & yaml.safe_load(SOURCES[name]).keys() - {*CARRIED}
    assert [key for key in keys if key not in comments] == []


@pytest.mark.parametrize("to", ["roll", "builtin"])
@pytest.mark.parametrize("name", RLVR)
def test_an_invalid_value_of_a_config_does_not_crash(name: str, to: Target) -> None:
    config = yaml.safe_load(SOURCES[name])
    for index, path in enumerate(list_paths(config)):
        changed: Any = deepcopy(config)
        select(changed, path[:-1])[path[-1]] = OTHER_TYPES[index % len(OTHER_TYPES)]
        with contextlib.suppress(ConvertError):
            convert(yaml.safe_dump(changed), "source.yaml", to).to_yaml("source.yaml")


SAME = {
    "num_gpus_per_node", "add_token_level_kl", "actor_infer.generating_args.max_new_tokens", "trainer.n_gpus_per_node",
    "actor_rollout_ref.actor.optim", "actor_rollout_ref.actor.optim.lr", "algorithm.use_kl_in_reward",
    "actor_train.data_args.messages", "actor_train.strategy_args.strategy_config",
    "actor_rollout_ref.actor.kl_loss_coef",
}  # fmt: skip
"""Settings that have their default, or a value that follows from others."""


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("roll-rlvr-megatron", "builtin"),
        ("roll-rlvr-async", "builtin"),
        ("roll-rlvr-async", "roll"),
        ("verl-ppo", "builtin"),
    ],
)
def test_a_setting_that_is_deleted_changes_the_job_or_the_comments(name: str, to: Target) -> None:
    config = read(name)
    before = strip_lines(convert(write(config), "source.yaml", to).to_yaml("source.yaml"))
    unnoticed = []
    for path in list(list_paths(config)):
        if len(path) == 1 or ".".join(map(str, path[1:])) in SAME or select(config, path) in ({}, []):
            continue
        changed: Any = deepcopy(config)
        del select(changed, path[:-1])[path[-1]]
        with contextlib.suppress(ConvertError):
            after = convert(write(changed), "source.yaml", to)
            unnoticed += [path] if strip_lines(after.to_yaml("source.yaml")) == before else []
    assert unnoticed == []


def test_settings_of_verl_without_an_effect_are_comments() -> None:
    config = """
actor_rollout_ref:
  actor: {use_dynamic_bsz: false, ppo_max_token_len_per_gpu: 16384}
  rollout: {multi_turn: {enable: false, max_assistant_turns: 3}}
trainer: {device: npu}
global_profiler: {steps: null, save_path: /mnt/rlt/profile}
custom_reward_function: {path: null, name: compute_score}
"""
    converted = convert(config, "source.yaml", "builtin")
    built = Draft(spec=converted.manifest["spec"])
    comments = "\n".join(map(str, converted.left_out))
    absent = ("training.ppoMaxTokenLenPerDevice", "rollout.multiTurn", "observability.profiler", "rewards")
    assert [field for field in absent if built.get(field) not in (None, {})] == []
    parts = ("ppoMaxTokenLenPerDevice 16384", "max_assistant_turns=3", "/mnt/rlt/profile", "name=compute_score")
    assert [part for part in parts if part not in comments] == []
    assert built.get("cluster.workers[].accelerator.resourceName") == "huawei.com/Ascend910"


def test_rolls_kl_terms_are_fields_if_rolls_switches_are_on() -> None:
    on = "init_kl_coef: 0.02\nadd_token_level_kl: true\nuse_kl_loss: true\nkl_loss_coef: 0.01\n"
    built = Draft(spec=convert(SOURCES["roll-rlvr-async"] + on, "source.yaml", "builtin").manifest["spec"])
    assert (built.get("algorithm.klLossCoef"), built.get("algorithm.klInReward")) == (0.01, {"klCoef": 0.02})
    off = on.replace("true", "false")
    built = Draft(spec=convert(SOURCES["roll-rlvr-async"] + off, "source.yaml", "builtin").manifest["spec"])
    assert (built.get("algorithm.klLossCoef"), built.get("algorithm.klInReward")) == (0, None)


def test_a_mini_batch_of_roll_is_a_number_of_prompts() -> None:
    source = SOURCES["roll-rlvr-async"]
    built = Draft(spec=convert(source, "source.yaml", "builtin").manifest["spec"])
    assert built.get("training.ppoMiniBatchSize") == 2 * 8 * 4 // 4  # per device, steps, shares, group
