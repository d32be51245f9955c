"""The options of OpenRLHF in commands: unknown names, devices and batches.

e2e/tests/test_openrlhf_options.py compares the table of options with OpenRLHF's own parser.
"""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import COMMAND, gpus, merged

from rlt_api.frameworks.openrlhf.options import describe_option, load_options
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

PROGRAM = ["python3", "-m", "openrlhf.cli.train_ppo_ray"]
DEVICES = "--actor.num_nodes=2 --actor.num_gpus_per_node 8 --train.colocate_all"


def build_spec(command: list[str], **changes: Any) -> dict[str, Any]:
    return merged(COMMAND, {"framework.command": command, **gpus(8, 2), **changes})


def list_warnings(command: list[str], **changes: Any) -> list[str]:
    spec = RLTrainingJobSpec.model_validate(build_spec(command, **changes))
    found = [each for each in find_warnings(spec) if each.startswith("spec.framework.command")]
    return [each for each in found if "is not replaced" not in each]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--rolout.batch_size=64", "did you mean --rollout.batch_size?"),
        ("--actor_num_nodes=2", "did you mean --actor.num_nodes?"),
        ("--actor.zero_stage=3", "did you mean --ds.zero_stage?"),
        ("--trainer.nnodes=2", "is not an option of OpenRLHF 0.11.2; remove it"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest(options: str, expected: str) -> None:
    (found,) = list_warnings([*PROGRAM, *DEVICES.split(), options])
    assert found.startswith(f"spec.framework.command[7]: {options}: ")
    assert expected in found


def test_the_options_of_earlier_versions_are_not_compared() -> None:
    assert list_warnings([*PROGRAM, "--actor_num_nodes", "2", "--zero_stage", "3", "--micro_batch_size", "7"]) == []


def test_the_beginning_of_one_name_alone_is_an_option() -> None:
    assert describe_option("actor.num_n") is None
    assert describe_option("actor.num") == "is not an option of OpenRLHF 0.11.2; remove it"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--train.batch_size=120", "needs a multiple of 16 (--train.micro_batch_size 1 x 16 actors); use 112 or 128"),
        ("--train.batch_size=120 --train.dynamic_batch_enable", None),
        ("--train.batch_size=$BATCH", None),
        ("--train.micro_batch_size=16", "OpenRLHF's default: DeepSpeed needs a multiple of 256 (--train."),
        ("--train.micro_batch_size=16 --ds.ring_attn_size=2", None),
        ("--rollout.batch_size=8", "8 responses in micro-batches of 1 are fewer than the 16 actors"),
        ("--rollout.batch_size=8 --rollout.n_samples_per_prompt=2", None),
        ("--ds.ring_attn_size=3", "does not divide the 16 accelerators of the actor"),
        ("--algo.advantage.estimator=rloo", "rloo compares the responses to a prompt; use 2 or more"),
        ("--algo.advantage.estimator=gae", None),
    ],
)  # fmt: skip
def test_sizes_are_compared_with_the_devices(options: str, expected: str | None) -> None:
    found = list_warnings([*PROGRAM, *DEVICES.split(), *options.split()])
    assert len(found) == (expected is not None), found
    assert not expected or expected in found[0]


@pytest.mark.parametrize(
    ("options", "fixed"),
    [
        ("--rolout.batch_size=64", "--rollout.batch_size=64"),
        ("--actor.zero_stage=3", "--ds.zero_stage=3"),
        ("--train.batch_size=120", "--train.batch_size=112"),
        ("--train.batch_size=120", "--train.batch_size=128"),
        ("--algo.advantage.estimator=rloo", "--algo.advantage.estimator=rloo --rollout.n_samples_per_prompt=2"),
    ],
)
def test_the_fix_of_a_warning_resolves_it(options: str, fixed: str) -> None:
    (found,) = list_warnings([*PROGRAM, *DEVICES.split(), *options.split()])
    assert fixed.partition("=")[0] in found or fixed.rpartition("=")[2] in found
    assert list_warnings([*PROGRAM, *DEVICES.split(), *fixed.split()]) == []


def test_a_script_is_read_as_well() -> None:
    (found,) = list_warnings(["bash", "-c", f"{' '.join(PROGRAM)} {DEVICES} --rolout.batch_size=64 2>&1 | tee log"])
    assert found.startswith("spec.framework.command[2]: --rolout.batch_size=64: ")


@pytest.mark.parametrize(
    ("options", "devices", "expected"),
    [
        ("--train.colocate_all", 8, None),
        ("--train.colocate_all", 4, "--actor.num_gpus_per_node=8, OpenRLHF's default: is more than the accelerators"),
        ("--actor.num_gpus_per_node=4 --train.colocate_all", 4, None),
        ("--actor.num_gpus_per_node=4 --actor.num_nodes=3 --train.colocate_all", 4, "needs 12 accelerators"),
    ],
)  # fmt: skip
def test_the_default_devices_of_the_actor_count(options: str, devices: int, expected: str | None) -> None:
    spec = build_spec([*PROGRAM, *options.split()], **gpus(devices, 2))
    found = [str(each) for each in validate_job("sum", spec).findings if each.rule == "command-devices"]
    assert len(found) == (expected is not None)
    assert not expected or expected in found[0]


def test_the_table_has_the_defaults_of_all_sizes() -> None:
    assert len(load_options().names) > 150
    assert load_options().integers["rollout.batch_size"] == 1024
