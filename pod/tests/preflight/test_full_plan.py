"""The engine and the step of verl, OpenRLHF, ROLL and commands, for preflight.level full: what the operator writes."""

from __future__ import annotations

import json
from typing import Any

import job_specs
import observed as o
import openrlhf_jobs
import pytest
import roll_jobs
import verl_jobs

from rlt_api.frameworks.command.devices import count_devices
from rlt_api.frameworks.known_programs import find_program
from rlt_api.frameworks.preflight import compute_batch
from rlt_api.frameworks.roll.keys import list_problems
from rlt_core.children.config_map import build_config_map, build_config_volume
from rlt_core.children.preflight_file import build_expected
from rlt_core.children.program import build_command
from rlt_pod.command.roll_layout import list_contradictions
from rlt_pod.preflight.expected import Engine, Expected, Trial, dump_expected, parse_expected

MAIN_PPO = ["python3", "-m", "verl.trainer.main_ppo"]
MODEL = "actor_rollout_ref.model.path=/models/q"
DEVICES = ["trainer.n_gpus_per_node=2", "trainer.nnodes=2"]
GROUP = {
    "replicas": 2,
    "resources": {"cpu": "8", "memory": "64Gi"},
    "accelerator": {"resourceName": "nvidia.com/gpu", "count": 2},
}
CLUSTER = {"image": "registry.example/verl:0.9.1", "workers": [GROUP]}
OPENRLHF = ["python3", "-m", "openrlhf.cli.train_ppo_ray", "--actor.model_name_or_path", "/models/q"]


def expect(spec: dict[str, Any]) -> Expected:
    """What the checks of a job with level full expect."""
    job = o.job({**spec, "preflight": {"level": "full", **spec.get("preflight", {})}})
    assert job.spec, job.findings
    expected = build_expected(job, job.spec)
    assert parse_expected(dump_expected(expected)) == expected
    return expected


def expect_command(*command: str, **preflight: Any) -> Expected:
    spec = {
        "framework": {"type": "command", "command": list(command)},
        "cluster": CLUSTER,
        "storage": {"claimName": "runs"},
        "preflight": preflight,
    }
    return expect(spec)


def read_settings(command: list[str]) -> dict[str, Any]:
    program = find_program(command)
    assert program
    return dict(program.values)


def test_the_builtin_trainer_starts_its_engine_in_its_own_step() -> None:
    expected = expect(o.SPEC)
    assert expected.trial
    assert (expected.engine, expected.framework_trial, expected.not_possible) == (None, None, [])


def test_level_basic_has_neither_engine_nor_step() -> None:
    expected = expect({**verl_jobs.VERL, "preflight": {"level": "basic"}})
    assert (expected.engine, expected.framework_trial, expected.not_possible) == (None, None, [])


def test_a_verl_job_starts_its_engine_and_makes_one_step_with_its_configuration() -> None:
    spec = {**verl_jobs.VERL, "training": {**verl_jobs.VERL["training"], "ppoMicroBatchSizePerDevice": 4}}
    expected = expect(spec)
    assert expected.engine
    assert expected.framework_trial
    command = expected.framework_trial.command
    job = o.job(spec)
    assert job.spec
    before = read_settings(build_command(job, job.spec))
    first = read_settings(command)
    assert expected.engine.name == "vllm"
    assert expected.engine.model == before["actor_rollout_ref.model.path"]
    assert expected.engine.tensor_parallel_size == before["actor_rollout_ref.rollout.tensor_model_parallel_size"]
    assert expected.engine.options["max_model_len"] == before["actor_rollout_ref.rollout.max_model_len"]
    changed = {key for key in first if first[key] != before.get(key)}
    assert {"trainer.default_local_dir", "trainer.total_training_steps", "data.train_batch_size"} <= changed
    assert not [key for key in changed if any(part in key for part in ("micro", "length", "offload", ".rollout."))]
    assert first["trainer.default_local_dir"].startswith(f"{expected.run_directory}/.preflight-trial/")


def test_the_second_start_of_verl_resumes_after_the_first_step() -> None:
    trial = expect_command(*MAIN_PPO, MODEL, *DEVICES, "trainer.resume_mode=auto").framework_trial
    assert trial
    assert trial.resume
    keys = ("trainer.resume_mode", "trainer.total_training_steps", "trainer.save_freq", "trainer.logger")
    first, second = (read_settings(command) for command in (trial.command, trial.resume))
    assert [first[key] for key in keys] == ["disable", 1, 1, "[console]"]
    assert [second[key] for key in keys] == ["auto", 2, 1, "[console]"]
    assert first["trainer.default_local_dir"] == second["trainer.default_local_dir"]


@pytest.mark.parametrize(
    ("arguments", "batch"),
    [
        ([], 8),  # 8 agent workers
        (["actor_rollout_ref.rollout.n=5"], 8),
        (["actor_rollout_ref.rollout.n=16"], 1),
        (["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "actor_rollout_ref.rollout.n=8"], 2),
        (["critic.ppo_micro_batch_size_per_gpu=12", "actor_rollout_ref.rollout.n=8"], 6),
        (["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=12", "actor_rollout_ref.rollout.n=8"], 6),
        (["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=12", "actor_rollout_ref.rollout.n=8"], 6),
        (["actor_rollout_ref.rollout.n=3", "data.train_batch_size=4"], 4),
    ],
)
def test_the_batch_of_the_step_is_the_smallest_that_verl_can_divide(arguments: list[str], batch: int) -> None:
    trial = expect_command(*MAIN_PPO, MODEL, *DEVICES, *arguments).framework_trial
    assert trial
    settings = read_settings(trial.command)
    assert settings["data.train_batch_size"] == settings["actor_rollout_ref.actor.ppo_mini_batch_size"] == batch


@pytest.mark.parametrize("unit", range(1, 25))
def test_responses_are_a_multiple_of_the_unit(unit: int) -> None:
    for responses in range(1, 10):
        batch = compute_batch(10**6, responses, unit)
        assert batch * responses % unit == 0
        assert not [fewer for fewer in range(1, batch) if fewer * responses % unit == 0]


def test_settings_with_side_effects_are_changed_only_if_the_command_has_them() -> None:
    given = ["trainer.rollout_data_dir=/data/rollouts", "critic.ppo_mini_batch_size=64"]
    trial, plain = (expect_command(*MAIN_PPO, MODEL, *DEVICES, *each).framework_trial for each in (given, []))
    assert trial
    assert plain
    settings = read_settings(trial.command)
    assert (settings["trainer.rollout_data_dir"], settings["critic.ppo_mini_batch_size"]) == (None, 8)
    assert not {"trainer.rollout_data_dir", "critic.ppo_mini_batch_size"} & read_settings(plain.command).keys()


def test_an_openrlhf_job_starts_its_engine_and_makes_one_step() -> None:
    expected = expect(openrlhf_jobs.OPENRLHF)
    assert expected.engine
    assert expected.framework_trial
    assert expected.framework_trial.resume
    before = read_settings(expected.framework_trial.command)
    assert expected.engine == Engine(
        "vllm",
        str(before["actor_model_name_or_path"]),
        int(str(before["vllm_tensor_parallel_size"])),
        {
            "max_model_len": before["data_max_len"],
            "gpu_memory_utilization": before["vllm_gpu_memory_utilization"],
            "dtype": "bfloat16",
            "trust_remote_code": True,
        },
    )
    directory = f"{expected.run_directory}/.preflight-trial"
    assert before["ckpt_path"] == f"{directory}/checkpoints"
    assert before["ckpt_output_dir"] == f"{directory}/model"
    assert before["data_max_samples"] == before["rollout_batch_size"]
    assert before["train_batch_size"] == before["rollout_batch_size"] * before["rollout_n_samples_per_prompt"]
    assert read_settings(expected.framework_trial.resume)["train_num_episodes"] == 2


def test_an_unknown_program_has_two_entries_that_name_the_remedy() -> None:
    engine, step = expect_command("python3", "train.py").not_possible
    assert (engine.name, engine.stage, step.name, step.stage) == ("engine", "services", "training-step", "training")
    assert step.remedy == "Set preflight.command to a program that trains for one step."


def test_preflight_command_replaces_the_derived_step() -> None:
    expected = expect_command("python3", "train.py", command=["python3", "train.py", "--steps=1"])
    trial = Trial(
        ["python3", "train.py", "--steps=1"], None, f"{expected.run_directory}/.preflight-trial", prints_steps=False
    )
    assert (expected.framework_trial, expected.engine, expected.not_possible) == (trial, None, [])


@pytest.mark.parametrize(
    ("command", "names", "reason"),
    [
        (["bash", "-c", " ".join([*MAIN_PPO, MODEL])], ["training-step"], "part of a script"),
        ([*MAIN_PPO, MODEL, "--config-name=mine"], ["engine", "training-step"], "its own config"),
        ([*MAIN_PPO, MODEL, "data.train_batch_size=$BATCH"], ["training-step"], "is a variable"),
        ([*MAIN_PPO, *DEVICES], ["engine"], "model.path is not in the arguments"),
        (
            [*MAIN_PPO, MODEL, "actor_rollout_ref.rollout.name=hf"],
            ["engine"],
            "The engine hf is neither vllm nor sglang",
        ),
        (
            [*MAIN_PPO, MODEL, "actor_rollout_ref.rollout.tensor_model_parallel_size=4"],
            ["engine"],
            "larger than the 2 accelerators of a pod",
        ),
        ([*OPENRLHF, "--rollout.batch_size=$BATCH"], ["training-step"], "is a variable"),
        ([*OPENRLHF[:3], "--pretrain=/models/q", "--rollout_batch_size=8"], ["training-step"], "OpenRLHF before 0.11"),
    ],
)
def test_what_cannot_be_derived_is_an_entry(command: list[str], names: list[str], reason: str) -> None:
    found = expect_command(*command).not_possible
    assert [each.name for each in found] == names
    assert reason in " ".join(each.reason for each in found)


def test_steps_that_do_not_run_with_only_are_the_reason() -> None:
    spec = {
        **verl_jobs.VERL,
        "framework": {**verl_jobs.VERL["framework"], "prepare": [{"name": "data", "command": ["true"]}]},
        "preflight": {"only": True},
    }
    found = expect(spec).not_possible
    assert [each.name for each in found] == ["engine", "training-step"]
    assert "framework.prepare" in found[0].reason


def test_sglang_has_its_own_names() -> None:
    engine = expect_command(
        *MAIN_PPO,
        MODEL,
        *DEVICES,
        "actor_rollout_ref.rollout.name=sglang",
        "actor_rollout_ref.rollout.max_model_len=64",
    ).engine
    assert engine
    assert engine.name == "sglang"
    assert engine.options["context_length"] == 64
    assert engine.options["mem_fraction_static"] == 0.5


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("default", 128),  # 128 x 8 responses / 16 shares: one micro-batch
        ("mini-batches", 8),  # 8 x 8 / 16: a micro-batch of 4
        *(("megatron", 32), ("separate", 128), ("sglang", 128), ("validation", 128)),
    ],
)
def test_a_roll_job_starts_its_engine_and_makes_steps_with_the_smallest_batch(name: str, batch: int) -> None:
    spec = job_specs.merged(roll_jobs.ROLL, roll_jobs.TABLE[name])
    expected = expect(spec)
    assert expected.engine
    assert expected.framework_trial
    assert expected.not_possible == []
    job = o.job({**spec, "preflight": {"level": "full"}})
    assert job.spec
    config_map = build_config_map(job, job.spec)
    volume = build_config_volume(job, job.spec)
    paths = {item["key"]: f"/etc/rlt/{item['path']}" for item in volume["sources"][0]["configMap"]["items"]}
    assert paths.keys() == config_map["data"].keys()
    files = {paths[key]: text for key, text in config_map["data"].items() if key.endswith(".yaml")}
    before = json.loads(files["/etc/rlt/roll.yaml"])
    trial = expected.framework_trial
    first, second = (json.loads(files[command[4]]) for command in (trial.command, trial.resume or []))
    devices = count_devices(job.spec.cluster.workers)
    for config in (first, second):
        assert [*list_problems(config), *list_contradictions(config, devices)] == []
    assert (first["rollout_batch_size"], second["rollout_batch_size"]) == (batch, batch)
    assert (first["max_steps"], second["max_steps"], first["save_steps"]) == (2, 3, 1)
    assert not {"validation", "tracker_kwargs"} & first.keys()
    assert trial.command[5:] == ["--", "python3", "examples/start_rlvr_pipeline.py"]
    assert (trial.resume or [])[5:7] == ["--checkpoints", first["output_dir"]]
    assert first["output_dir"] == second["output_dir"] == f"{trial.directory}/checkpoints"
    micro = [each["actor_train"]["training_args"]["per_device_train_batch_size"] for each in (before, first)]
    assert micro[0] == micro[1]


def test_rolls_engine_has_the_options_of_its_config() -> None:
    options = {"dtype": "bfloat16", "trust_remote_code": True}
    engine = expect(job_specs.merged(roll_jobs.ROLL, {"rollout.tensorParallelSize": 2})).engine
    assert engine == Engine(
        *("vllm", "Qwen/Qwen2.5-7B-Instruct", 2),
        {"max_model_len": 1024, "gpu_memory_utilization": 0.5, "enforce_eager": False, **options},
    )
    sglang = expect(job_specs.merged(roll_jobs.ROLL, roll_jobs.TABLE["sglang"])).engine
    assert sglang
    assert sglang.options.keys() == {"context_length", "mem_fraction_static", *options}


def test_the_batch_of_a_command_that_starts_roll_is_unknown() -> None:
    launch = ["python3", "/etc/rlt/rlt_pod.pyz", "run-roll", "--config", "/mnt/rlt/rlvr.yaml", "--", "python3"]
    _, step = expect_command(*launch, "examples/start_rlvr_pipeline.py").not_possible
    assert step.reason == "ROLL's config is in the image or on a volume, so that its batch is unknown."
