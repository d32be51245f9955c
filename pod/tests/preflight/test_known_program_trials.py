"""The step of slime, SkyRL, NeMo-RL, prime-rl and TRL as commands, for preflight.level full."""

from __future__ import annotations

from typing import Any

import job_specs
import observed as o
import pytest

from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.warnings import find_warnings
from rlt_core.children.preflight_file import build_expected
from rlt_pod.preflight.expected import Trial

SLIME = (
    "python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 2 --colocate --hf-checkpoint /m/q --ref-load /m/d "
    "--load /out --save /out --save-interval 20 --rollout-batch-size 32 --n-samples-per-prompt 8 --num-rollout 3000 "
    "--global-batch-size 256 --tensor-model-parallel-size 2 --eval-interval 20 --eval-prompt-data aime /d/aime.jsonl "
    "--use-wandb --wandb-project p --prompt-data /d/p.jsonl"
)
SKYRL = (
    "python3 -m skyrl.train.entrypoints.main_base trainer.placement.policy_num_gpus_per_node=2 "
    "trainer.placement.policy_num_nodes=2 trainer.train_batch_size=1024 generator.n_samples_per_prompt=5 "
    "trainer.micro_train_batch_size_per_gpu=2 trainer.ckpt_path=/out"
)
NEMO = "uv run examples/run_grpo.py --config c.yaml cluster.num_nodes=2 cluster.gpus_per_node=2"
PRIME = "ray job submit --entrypoint-num-gpus 2 -- rl @ rl.toml --output-dir /out --run.name a --max-steps 500"
TRL = "ray job submit --entrypoint-num-gpus 2 -- trl grpo --config grpo.yaml --output_dir /out --push_to_hub"


def expect(line: str) -> Trial | None:
    """The trial of a command in a job with two pods of two accelerators."""
    changes = {"framework.command": line.split(), "preflight": {"level": "full"}, **job_specs.gpus(2, 2)}
    job = o.job(job_specs.merged(job_specs.COMMAND, changes))
    assert job.spec, job.findings
    return build_expected(job, job.spec).framework_trial


def plan(line: str) -> tuple[Trial, dict[str, Any], dict[str, Any]]:
    """The trial of a command, and the arguments of both starts."""
    trial = expect(line)
    assert trial
    starts = [find_program(each) for each in (trial.command, trial.resume or trial.command)]
    first, second = (dict(each.values) for each in starts if each)
    return trial, first, second


@pytest.mark.parametrize(
    ("line", "steps", "expected"),
    [
        (
            SLIME,
            "num_rollout",
            {"rollout_batch_size": 1, "global_batch_size": 8, "save_interval": 1, "wandb_mode": "disabled"},
        ),
        (SKYRL, "trainer.max_training_steps", {"trainer.train_batch_size": 8, "trainer.policy_mini_batch_size": 8}),
        (NEMO, "grpo.max_num_steps", {"grpo.num_prompts_per_step": 4, "policy.train_global_batch_size": 8}),
        (PRIME, "max_steps", {"ckpt_interval": 1}),
    ],
    ids=["slime", "skyrl", "nemo-rl", "prime-rl"],
)
def test_a_program_makes_one_step_and_then_the_second(line: str, steps: str, expected: dict[str, Any]) -> None:
    trial, first, second = plan(line)
    assert {key: first[key] for key in expected} == expected
    assert (first[steps], second[steps]) == (1, 2)
    assert trial.command[: len(line.split())] == line.split()
    program = find_program(trial.command)
    assert program
    key = get_record(program).checkpoints or "ckpt_output_dir"
    assert first[key] == second[key]
    assert first[key].startswith(trial.directory)


def test_trl_makes_one_step_without_a_second_start() -> None:
    trial, first, _ = plan(TRL)
    assert trial.resume is None
    assert first["output_dir"] == f"{trial.directory}/checkpoints"
    assert (first["max_steps"], first["report_to"], first["push_to_hub"]) == (1, "none", False)


@pytest.mark.parametrize("line", [SLIME, SKYRL, NEMO, PRIME, TRL], ids=["slime", "skyrl", "nemo-rl", "prime-rl", "trl"])
def test_the_programs_have_the_arguments_of_the_step(line: str) -> None:
    trial, _, _ = plan(line)
    for command in (trial.command, trial.resume or []):
        spec = RLTrainingJobSpec.model_validate(job_specs.merged(job_specs.COMMAND, {"framework.command": command}))
        assert not [each for each in find_warnings(spec) if "is not an argument" in each or "needs a" in each]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (SLIME.replace("--ref-load /m/d ", ""), "without --ref-load"),
        (SLIME.replace("--rollout-batch-size 32", "--rollout-batch-size $N"), "is a variable"),
        (SKYRL.replace("skyrl.train.entrypoints.main_base", "mine.main_mine"), "is not skyrl.train"),
        (NEMO.replace(" cluster.gpus_per_node=2", ""), "cluster.gpus_per_node are not in the arguments"),
        (NEMO.replace("run_grpo", "run_sft"), "other than GRPO"),
        (PRIME.replace("-- rl @", "-- orchestrator @"), "only rl and sft"),
        ("python3 mine.py", "is not a known one"),
    ],
)
def test_a_step_that_is_not_known_is_named_by_validation(line: str, reason: str) -> None:
    assert expect(line) is None
    changes = {"framework.command": line.split(), "preflight": {"level": "full"}}
    spec = RLTrainingJobSpec.model_validate(job_specs.merged(job_specs.COMMAND, changes))
    assert any(reason in each and "the other stages of level full run" in each for each in find_warnings(spec))
