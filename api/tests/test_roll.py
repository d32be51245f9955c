"""Jobs with framework roll: the config of each field, against the keys of ROLL's config classes, and overrides."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from job_specs import merged
from roll_jobs import ROLL, TABLE, resolve
from verl_jobs import RUN

from rlt_api.frameworks.roll.keys import list_keys, list_problems
from rlt_api.frameworks.roll.settings import build_arguments, build_config, dump_config
from rlt_api.frameworks.warnings import warn_framework
from rlt_api.validation.validate import validate_job
from rlt_pod.command.roll_layout import list_contradictions, parse_devices

TRAIN = "actor_train"
REFERENCE = {"algorithm.klLossCoef": 0.001}
OPTIONS = "actor_train.strategy_args.strategy_config"


@pytest.mark.parametrize("name", TABLE)
def test_job_is_valid(name: str) -> None:
    assert validate_job("sum", merged(ROLL, TABLE[name])).findings == ()


@pytest.mark.parametrize("name", TABLE)
def test_config_has_keys_and_types_of_the_classes_and_fits_the_pods(name: str) -> None:
    spec = resolve(TABLE[name])
    config = build_config(spec, RUN)
    devices = sum(group.replicas * group.accelerator.count for group in spec.cluster.workers if group.accelerator)
    assert list(list_problems(config)) == []
    assert list(list_contradictions(config, devices)) == []
    assert json.loads(dump_config(spec, RUN)) == config


def test_the_table_has_at_least_40_jobs_and_the_keys_of_all_classes() -> None:
    assert len(TABLE) >= 40
    assert {"rollout_batch_size", "actor_train.training_args.learning_rate", "actor_infer.generating_args.top_p"} < set(
        list_keys()
    )


def test_the_command_of_a_job() -> None:
    arguments = build_arguments(resolve({}), RUN)
    assert arguments == [
        *("python3", "/etc/rlt/rlt_pod.pyz", "run-roll", "--config", "/etc/rlt/roll.yaml"),
        *("--checkpoints", "/mnt/rlt/runs/sum-1/checkpoints", "--", "python3", "examples/start_rlvr_pipeline.py"),
    ]


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, 16),
        ({"training.contextParallelSize": 4, "model.useRemovePadding": True}, 4),
        (TABLE["megatron"], 4),  # TP 2 x PP 2; the experts do not count
        (TABLE["megatron-context"], 8),
        (TABLE["separate"], 16),
        (TABLE["reference-apart"], 8),
    ],
)
def test_mini_batch_is_micro_batch_times_accumulation_times_shares(changes: dict[str, Any], shares: int) -> None:
    spec = resolve(merged({"training.ppoMiniBatchSize": 64}, changes))
    role: Any = build_config(spec, RUN)["actor_train"]
    size = role["training_args"]["per_device_train_batch_size"] * role["training_args"]["gradient_accumulation_steps"]
    prompts = spec.training.ppo_mini_batch_size or spec.training.train_batch_size
    assert size * shares == prompts * spec.rollout.responses_per_prompt


def test_roles_of_separate_groups_have_no_common_device() -> None:
    config: Any = build_config(resolve({**TABLE["separate"], **REFERENCE}), RUN)
    assert config["actor_train"]["device_mapping"] == config["reference"]["device_mapping"] == "list(range(0,16))"
    assert config["actor_infer"]["device_mapping"] == "list(range(16,24))"


def test_strategies_of_the_overrides_get_their_own_options() -> None:
    config: Any = build_config(resolve({**TABLE["megatron"], **REFERENCE}), RUN)
    assert "fsdp_size" not in config["actor_train"]["strategy_args"]["strategy_config"]
    assert config["reference"]["strategy_args"]["strategy_name"] == "megatron_infer"
    assert config["reference"]["strategy_args"]["strategy_config"]["tensor_model_parallel_size"] == 2
    engine: Any = build_config(resolve(TABLE["sglang"]), RUN)["actor_infer"]
    assert engine["num_gpus_per_worker"] == 2
    assert "mem_fraction_static" in engine["strategy_args"]["strategy_config"]
    assert "gpu_memory_utilization" not in engine["strategy_args"]["strategy_config"]


def test_paths_are_not_interpolations() -> None:
    config: Any = build_config(resolve(TABLE["files"]), RUN)
    assert config["actor_train"]["data_args"]["file_name"][1] == "/mnt/rlt/\\${b}.parquet"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["oops"], "KEY=VALUE"),
        ([f"{TRAIN}.device_mapping=list(range(0,24))"], "names device 23, and the job has 16 (0 to 15)"),
        ([f"{TRAIN}.device_mapping=list(range(0,8)) + [7]"], "names a device twice"),
        ([f"{TRAIN}.device_mapping=all"], "is not a list of devices"),
        ([f"{TRAIN}.device_mapping=list(range(0,10))"], "is not divisible by the 10 data-parallel shares"),
        (["rollout_batch_size=100"], "does not divide"),
        ([f"{TRAIN}.training_args.gradient_accumulation_steps=7"], "does not divide the 64 responses of a share"),
        ([f"{TRAIN}.training_args.learning_rate=fast"], "is not of ROLL's type float"),
        ([f"{TRAIN}.strategy_args.strategy_name=deepspeed_train"], "is not of ROLL's type Literal"),
        (["num_gpus_per_node=4"], "follows from the devices of the roles"),
        (
            [f"{TRAIN}.strategy_args.strategy_name=megatron_train", f"{OPTIONS}.tensor_model_parallel_size=3"],
            "does not divide the 16 devices of actor_train",
        ),
        (
            [
                f"{TRAIN}.strategy_args.strategy_name=megatron_train",
                f"{OPTIONS}.tensor_model_parallel_size=4",
                f"{OPTIONS}.pipeline_model_parallel_size=8",
            ],
            "(tensor_model_parallel_size 4 x pipeline_model_parallel_size 8)",
        ),
        (["rewards.judge.device_mapping=list(range(12,16))"], "shares device 12 with actor_infer"),
        (["actor_infer.strategy_args.strategy_config.max_model_len=512"], "is less than a prompt with its response"),
    ],
)
def test_overrides_that_contradict_the_pods_or_each_other_are_rejected(overrides: list[str], message: str) -> None:
    found = validate_job("sum", merged(ROLL, {"framework.overrides": overrides})).findings
    assert any(message in f"{each.message} {each.fix}" for each in found), list(map(str, found))
    assert all(each.field.startswith("spec.framework.overrides") for each in found)


@pytest.mark.parametrize(
    ("override", "warning"),
    [
        ("rollout_batch_size=256", "replaces spec.training.trainBatchSize; use that field"),
        ("rollout_batch_size=128", None),
        ("rolout_batch_size=128", "did you mean rollout_batch_size?"),
        ("actor_train.learning_rate=1e-6", "did you mean actor_train.training_args.learning_rate?"),
        ("actor_trian.training_args.learning_rate=1e-6", "actor_trian is not a key of ROLL"),
        (
            'actor_train.model_args={"atn_implementation": "fa2"}',
            "model_args.atn_implementation is not a key",
        ),
        ("reward_clip=10", None),
        (f"{TRAIN}.training_args.warmup_step=5", f"did you mean {TRAIN}.training_args.warmup_steps?"),
    ],
)
def test_unknown_overrides_and_overrides_of_a_field_have_warnings(override: str, warning: str | None) -> None:
    found = [text for text in warn_framework(resolve({"framework.overrides": [override]})) if "[0]" in text]
    assert len(found) == (warning is not None)
    assert warning is None or warning in found[0]


def test_idle_devices_have_a_warning() -> None:
    overrides = [f"{role}.device_mapping=list(range(0,8))" for role in ("actor_train", "actor_infer", "reference")]
    assert any(
        "the roles use 8 of the 16 devices" in text
        for text in warn_framework(resolve({"framework.overrides": overrides}))
    )


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("list(range(0,4))", [0, 1, 2, 3]),
        ("[0, 2] + list(range(4,8,2))", [0, 2, 4, 6]),
        ("__import__('os')", None),
        ("list(range(0,10**9))", None),
        ("", None),
    ],
)
def test_device_mapping_is_parsed_without_running_it(text: str, devices: list[int] | None) -> None:
    assert parse_devices(text) == devices


def test_a_published_config_with_deepspeed_is_compared_with_its_formula() -> None:
    role = {
        "device_mapping": "list(range(0,8))",
        "strategy_args": {"strategy_name": "deepspeed_train"},
        "training_args": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 16},
    }
    config: Any = {"rollout_batch_size": 64, "num_return_sequences_in_group": 8, "actor_train": role}
    assert list(list_contradictions(config, 8)) == []  # 2 x 16 x 8 divides 64 x 8
    config["rollout_batch_size"] = 16
    (found,) = list_contradictions(config, 8)
    assert (found.key, found.fix) == ("actor_train.training_args.gradient_accumulation_steps", "use 8")
    assert math.prod((2, 8, 8)) == 16 * 8
