"""The programs that command jobs start: command lines as in their documentation, and what they request."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from job_specs import COMMAND, gpus, merged

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.known_programs import PROGRAMS, find_program, get_record
from rlt_api.frameworks.registry import get_framework
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

SLIME = "python3 train.py --hf-checkpoint /models/q --prompt-data /data/p.jsonl --rollout-batch-size 32"
SKYRL = "uv run --isolated --extra vllm -m skyrl_train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen3-4B"
PLACED = "trainer.placement.policy_num_gpus_per_node=4"

DEMANDS: list[tuple[str, str, tuple[int, int, int | None] | None]] = [
    ("slime", f"{SLIME} --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate", (16, 0, 8)),
    ("slime", f"{SLIME} --actor-num-nodes 1 --actor-num-gpus-per-node 4 --rollout-num-gpus 4", (4, 4, 4)),
    ("slime", f"{SLIME} --actor-num-gpus-per-node 4 --rollout-num-gpus 8 --colocate", (8, 0, 4)),
    ("slime", f"{SLIME} --rollout-num-gpus 8 --debug-rollout-only", (8, 0, None)),
    ("slime", f"ray job submit --address=http://127.0.0.1:8265 -- {SLIME} --rollout-num-gpus=8", (8, 8, 8)),
    ("slime", f"{SLIME.replace('train.py', '/root/slime/train_async.py')} --actor-num-gpus-per-node $N", None),
    ("miles", f"{SLIME.replace('train.py', '/root/miles/train.py')} --rollout-num-gpus 4 --eval-num-gpus 4", (8, 8, 8)),
    ("miles", f"{SLIME} --rollout-num-gpus 8 --use-miles-router", (8, 8, 8)),
    ("nemo-rl", "uv run examples/run_grpo_math.py", (1, 0, 1)),
    (
        "nemo-rl",
        "uv run ./examples/run_grpo.py --config c.yaml cluster.num_nodes=2 cluster.gpus_per_node=8",
        (16, 0, 8),
    ),
    ("nemo-rl", "uv run python examples/run_dpo.py --config examples/configs/dpo.yaml", None),
    ("nemo-rl", "python examples/nemo_gym/run_grpo_nemo_gym.py cluster.gpus_per_node=8", (8, 0, 8)),
    ("nemo-rl", "python run_grpo.py cluster.gpus_per_node=4 policy.model_name=Qwen/Qwen3-4B", (4, 0, 4)),
    ("skyrl", f"{SKYRL} {PLACED} generator.num_inference_engines=4", (4, 0, 4)),
    (
        "skyrl",
        f"{SKYRL} {PLACED} trainer.placement.colocate_all=false generator.num_inference_engines=2 "
        "generator.inference_engine_tensor_parallel_size=2",
        (4, 4, 4),
    ),
    (
        "skyrl",
        f"uv run -m skyrl.train.entrypoints.main_base {PLACED} trainer.placement.policy_num_nodes=2 "
        "trainer.placement.colocate_all=false trainer.critic.model.path=/m "
        "trainer.placement.critic_num_gpus_per_node=2 "
        "generator.inference_engine.num_engines=2 generator.inference_engine.tensor_parallel_size=4",
        (10, 8, 4),
    ),
    ("skyrl", f"uv run -m examples.train.async.main_async {PLACED} trainer.placement.colocate_all=true", (4, 0, 4)),
    (
        "skyrl",
        f"{SKYRL} {PLACED} trainer.placement.colocate_all=false generator.run_engines_locally=false "
        "generator.num_inference_engines=2",
        (4, 0, 4),
    ),
    ("skyrl", SKYRL, None),
    ("prime-rl", "uv run rl @ configs/reverse_text/rl.toml", None),
    ("prime-rl", "rl @ rl.toml --deployment.num-train-gpus 2 --deployment.num-infer-gpus 6", (8, 0, 8)),
    ("prime-rl", "uv run rl --trainer @ t.toml --trainer-gpu-ids 0,1 --inference-gpu-ids 2,3,4,5", (6, 0, 6)),
    ("prime-rl", "torchrun --nproc-per-node 8 src/prime_rl/trainer/rl/train.py @ trainer.toml", (8, 0, 8)),
    ("trl", "trl grpo --config grpo.yaml --num_processes 4", (4, 0, 4)),
    ("trl", "accelerate launch --num_processes 16 --num_machines=2 -m trl.scripts.grpo --output_dir /o", (16, 0, 8)),
    ("trl", "torchrun --nnodes=2 --nproc-per-node=4 trl/scripts/rloo.py --model_name_or_path Qwen/Qwen3-4B", (8, 0, 4)),
    ("trl", "trl sft --model_name_or_path Qwen/Qwen3-4B --dataset_name trl-lib/Capybara", None),
]


def job(command: str, **changes: Any) -> dict[str, Any]:
    return merged(COMMAND, {"framework.command": shlex.split(command), **changes})


def find(command: str, pods: int, devices: int) -> list[Finding]:
    found = validate_job("sum", job(command, **gpus(devices, pods))).findings
    return [each for each in found if each.rule == "command-devices"]


def warn(command: str, **changes: Any) -> list[str]:
    return list(find_warnings(RLTrainingJobSpec.model_validate(job(command, **{**gpus(8, 2), **changes}))))


@pytest.mark.parametrize(("name", "command", "demand"), DEMANDS)
def test_a_program_is_recognized_with_the_devices_that_it_requests(
    name: str, command: str, demand: tuple[int, int, int | None] | None
) -> None:
    for words in (shlex.split(command), ["bash", "-c", f"set -x; cd /w && {command} 2>&1 | tee log"]):
        program = find_program(words)
        assert program
        assert program.name == name
        counted = get_record(program).count_devices(program)
        assert (counted and (counted.training, counted.engines, counted.per_pod)) == demand


def test_every_program_has_a_command_line_here_or_in_the_tests_of_its_arguments() -> None:
    assert {name for name, _, _ in DEMANDS} == PROGRAMS.keys() - {"verl", "openrlhf"}


@pytest.mark.parametrize(
    "command",
    [
        "python3 train.py --epochs 3",
        "python3 run_sft.py --lr 1e-5",
        "python3 main_app.py placement=1",
        "trl env",
        "rl train",
        "python -m trainer --config x",
    ],
)
def test_other_programs_of_these_names_are_not_read(command: str) -> None:
    assert find_program(shlex.split(command)) is None


@pytest.mark.parametrize(("name", "command", "demand"), [each for each in DEMANDS if each[2]])
def test_devices_that_the_job_does_not_have_are_an_error(
    name: str, command: str, demand: tuple[int, int, int | None]
) -> None:
    training, engines, per_pod = demand
    assert not find(command, 1 + (training + engines) // max(per_pod or 8, 1), max(per_pod or 8, 8))
    if training + engines > 1:
        (finding,) = find(command, 1, training + engines - 1)
        assert PROGRAMS[name].title in finding.message


def test_devices_are_divided_into_equal_pods() -> None:
    divided = []
    for _, command, demand in DEMANDS:
        program = find_program(shlex.split(command))
        counted = get_record(program).count_devices(program) if program and demand else None
        if counted:
            pods, each = counted.divide()
            assert pods * each >= counted.total
            assert each >= (counted.per_pod or 1)
            divided.append((counted.total, pods, each))
    assert {(16, 2, 8), (8, 1, 8), (18, 3, 8)} <= set(divided)


def test_a_program_without_ray_starts_on_a_worker() -> None:
    message = "with ray job submit --entrypoint-num-gpus 4"
    assert any(message in each for each in warn("trl grpo --num_processes 4 --output_dir /mnt/rlt/o"))
    moved = "ray job submit --entrypoint-num-gpus 4 -- trl grpo --num_processes 4"
    assert not any("entrypoint-num-gpus" in each for each in warn(moved))


def test_a_restart_without_the_switch_that_resumes_is_a_warning() -> None:
    changes = {"failurePolicy.maxRestarts": 3}
    command = f"{SLIME} --colocate --save /mnt/rlt/c"
    assert any("maxRestarts: 3" in each and "--load" in each for each in warn(command, **changes))
    assert not any("maxRestarts" in each for each in warn(f"{command} --load /mnt/rlt/c", **changes))
    assert not any("maxRestarts" in each for each in warn(command))


def test_the_scripts_of_trl_do_not_resume() -> None:
    found = warn("trl grpo --output_dir /mnt/rlt/o", **{"failurePolicy.maxRestarts": 1})
    assert any("trainer.train(resume_from_checkpoint=True)" in each for each in found)


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("rl @ rl.toml --output-dir /mnt/rlt/out --run.name a", "/mnt/rlt/out/a/checkpoints"),
        ("rl @ rl.toml --output-dir /mnt/rlt/out --run.name a --run.dir b", "/mnt/rlt/out/b/checkpoints"),
        ("rl @ rl.toml --output-dir /mnt/rlt/out --ckpt.output-dir /mnt/rlt/big", "/mnt/rlt/big/checkpoints"),
        ("uv run trainer @ t.toml --output-dir /mnt/rlt/out", "/mnt/rlt/out/checkpoints"),
        ("rl @ rl.toml --output-dir /mnt/rlt/out", None),
        ("rl @ rl.toml --output-dir outputs --run.name a", None),
    ],
)
def test_the_checkpoints_of_prime_rl_are_in_the_folder_of_the_run(line: str, folder: str | None) -> None:
    spec = RLTrainingJobSpec.model_validate(merged(COMMAND, {"framework.command": line.split()}))
    assert get_framework(spec).find_checkpoints(spec, Run("", "", "")) == folder


def test_a_run_of_prime_rl_without_a_name_does_not_resume() -> None:
    command = "rl --output-dir /mnt/rlt/out --ckpt.interval 5 --resume"
    assert any("add --run.name" in each for each in warn(f"uv run {command}"))
    assert not any("add --run.name" in each for each in warn(f"uv run {command} --run.name a"))
