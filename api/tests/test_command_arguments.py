"""The arguments of verl and OpenRLHF in commands: how they are read, and what is compared with the job."""

from __future__ import annotations

import re
from typing import Any

import pytest
from job_specs import COMMAND, env, gpus, merged

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.arguments import parse_value
from rlt_api.frameworks.known_programs import find_program
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

VERL = ["python3", "-m", "verl.trainer.main_ppo"]
OPENRLHF = ["python3", "-m", "openrlhf.cli.train_ppo_ray"]


def job(command: list[str], **changes: Any) -> dict[str, Any]:
    return merged(COMMAND, {"framework.command": command, **changes})


def find(command: list[str], **changes: Any) -> list[Finding]:
    return [each for each in validate_job("sum", job(command, **changes)).findings if each.rule == "command-devices"]


def warnings(*arguments: str, **changes: Any) -> list[str]:
    spec = RLTrainingJobSpec.model_validate(job([*VERL, *arguments], **{**gpus(8, 2), **changes}))
    found = [each for each in find_warnings(spec) if each.startswith("spec.framework.command")]
    return [each for each in found if "is not replaced" not in each]


SCRIPT = r"""set -x
export A=1; python3 -m verl.trainer.main_ppo \
  trainer.nnodes=2 \
  'trainer.logger=["console"]' 2>&1 | tee log
"""


@pytest.mark.parametrize(
    ("command", "index"),
    [
        ([*VERL, "trainer.nnodes=2"], 3),
        (["python", "-u", "-m", "verl.trainer.main_ppo", "trainer.nnodes=2"], 4),
        (["/opt/venv/bin/python3.12", "-X", "dev", "-m", "verl.trainer.main_ppo", "trainer.nnodes=2"], 5),
        (["python3", "/workspace/verl/verl/trainer/main_ppo.py", "trainer.nnodes=2"], 2),
        (["torchrun", "--standalone", "-m", "verl.trainer.main_ppo", "trainer.nnodes=2"], 4),
        (["env", "A=b", *VERL, "trainer.nnodes=2"], 5),
        (["ray", "job", "submit", "--", *VERL, "trainer.nnodes=2"], 7),
        (["bash", "-c", "python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.device=cuda"], 2),
        (["/bin/bash", "-o", "pipefail", "-lc", SCRIPT], 4),
        (["env", "A=b", "sh", "-ec", "cd /x && python3 -m verl.trainer.main_ppo trainer.nnodes=2; echo done"], 4),
    ],
)
def test_verl_is_known_in_every_spelling(command: list[str], index: int) -> None:
    program = find_program(command)
    assert program
    assert program.name == "verl"
    assert (program.values["trainer.nnodes"], program.given["trainer.nnodes"].index) == (2, index)
    assert not {"done", "tee", "log", "A"} & program.given.keys()


@pytest.mark.parametrize(
    "command",
    [["python3", "train.py", "trainer.nnodes=2"], ["python3", "-m", "verl.trainer.main_eval"], ["bash", "-c", "'"], []],
)
def test_other_programs_are_not_read(command: list[str]) -> None:
    assert find_program(command) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("8", 8), ("1e-6", 1e-6), ("1_000", 1000), ("True", True), ("null", None), ("'a b'", "a b"), ('"8"', "8")),
        *(("[a,b]", "[a,b]"), ("", ""), ("nan", "nan")),
    ],
)
def test_values_are_parsed_as_hydra_does(text: str, value: Any) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("arguments", "changes", "fix"),
    [
        (["trainer.nnodes=4", "trainer.n_gpus_per_node=8"], gpus(8, 2), "use trainer.nnodes=2, or 4 replicas"),
        (["trainer.nnodes=4"], {}, "use trainer.nnodes=2"),
        (["trainer.n_gpus_per_node=8"], gpus(4, 2), "use trainer.n_gpus_per_node=4"),
        (["trainer.nnodes=1"], gpus(4, 2), "add trainer.n_gpus_per_node=4"),
        (
            ["trainer.nnodes=2", "actor_rollout_ref.rollout.tensor_model_parallel_size=3"],
            gpus(8, 2),
            "use actor_rollout_ref.rollout.tensor_model_parallel_size=2",
        ),
    ],
)
def test_devices_that_do_not_exist_are_rejected(arguments: list[str], changes: Any, fix: str) -> None:
    (finding,) = find([*VERL, *arguments], **changes)
    assert fix in finding.fix
    assert bool(finding.edits) is fix.startswith("use")
    (in_script,) = find(["bash", "-c", " ".join([*VERL, *arguments])], **changes)
    assert (in_script.fix, in_script.edits) == (finding.fix, ())
    for edit in finding.edits:
        ((field, value),) = edit.items()
        index = int(field.partition("[")[2].rstrip("]"))
        command = [*VERL, *arguments]
        command[index] = str(value)
        assert find(command, **changes) == []


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        (["trainer.nnodes=2", "trainer.n_gpus_per_node=8"], gpus(8, 2)),
        (["trainer.nnodes=4", "trainer.n_gpus_per_node=4"], gpus(8, 2)),
        (["trainer.nnodes=$NODES"], gpus(8, 2)),
        (["--config-name", "mine", "trainer.nnodes=2"], gpus(4, 2)),
        (["trainer.nnodes=4", "trainer.device=cpu"], {}),
        ([], {}),
    ],
)
def test_devices_that_may_exist_are_accepted(arguments: list[str], changes: Any) -> None:
    assert find([*VERL, *arguments], **changes) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--actor_num_nodes 2 --actor_num_gpus_per_node 8", None),
        ("--actor_num_nodes 4 --actor_num_gpus_per_node 8", "needs 32 accelerators, and the job has 16"),
        ("--actor.num_nodes=1 --actor.num-gpus-per-node=16", "is more than the accelerators of a pod"),
        ("--actor_num_nodes 2 --actor_num_gpus_per_node 8 --vllm_num_engines 4", "16 + 4 of the vLLM engines"),
        ("--actor_num_nodes 2 --actor_num_gpus_per_node 8 --vllm_num_engines 4 --colocate_all_models", None),
        ("--actor.num_nodes 2 --actor.num_gpus_per_node 8 --vllm.num_engines 4 --train.colocate_all", None),
    ],
)
def test_openrlhf_needs_its_devices(arguments: str, expected: str | None) -> None:
    found = find([*OPENRLHF, *arguments.split()], **gpus(8, 2))
    assert len(found) == (expected is not None)
    assert not expected or expected in found[0].message


@pytest.mark.parametrize(
    ("options", "engine", "own_config"),
    [
        (["--config-name=ppo_megatron_trainer"], "megatron", False),
        (["--config-name", "ppo_megatron_trainer.yaml", "--config-path=config"], "megatron", False),
        (["-cn", "ppo_trainer"], "dp", False),
        (["--config-name=ppo_megatron_trainer", "model_engine=dp"], "dp", False),
        ([], None, False),
        (["--config-name=mine"], None, True),
        (["--config-path=/mnt/rlt", "--config-name=ppo_trainer"], None, True),
    ],
)
def test_the_configs_that_verl_ships_are_known(options: list[str], engine: str | None, own_config: bool) -> None:
    program = find_program([*VERL, *options, "trainer.nnodes=2"])
    assert program
    assert (program.values.get("model_engine"), program.own_config) == (engine, own_config)


def test_a_shipped_config_has_the_keys_of_its_engine() -> None:
    key = "actor_rollout_ref.actor.megatron.tensor_model_parallel_sizes=2"
    assert any("did you mean" in each for each in warnings("--config-name=ppo_megatron_trainer", key))
    fixed = key.replace("sizes", "size")
    assert not warnings("--config-name=ppo_megatron_trainer", fixed, "trainer.nnodes=2")


def test_without_the_runtime_the_devices_are_unknown() -> None:
    command = {"type": "command", "command": [*VERL, "trainer.nnodes=4"]}
    spec = {"runtimeRef": {"name": "gpu"}, "framework": command, "cluster": {"workers": [{"replicas": 2}]}}
    assert [each.rule for each in validate_job("sum", spec).findings] == ["command-devices"]
    del spec["cluster"]
    assert validate_job("sum", spec).findings == ()


NODES = ("trainer.nnodes=2", "trainer.n_gpus_per_node=8")


WARNED = [
    ("data.train_batchsize=512", "is not a key of verl 0.9.1; did you mean data.train_batch_size?"),
    ("actor_rollout_ref.actor.ppo_minibatch_size=64", "did you mean actor_rollout_ref.actor.ppo_mini_batch_size?"),
    ("foo.bar=1", "put a + before it"),
    ("+data.train_batch_size=512", "remove the +"),
    ("trainer.nnode=2", "verl 0.9.1 has trainer.nnodes instead"),
    ("data.train_batch_size=16", "ppo_mini_batch_size 256 <= train_batch_size 16"),
    ("actor_rollout_ref.actor.ppo_mini_batch_size=77", "77 to divide train_batch_size 1024; use "),
    ("actor_rollout_ref.actor.ppo_mini_batch_size=8", "8 prompts x 1 responses of a mini-batch are not"),
    ("actor_rollout_ref.actor.fsdp_config.fsdp_size=3", "fsdp_size=3: does not divide the 16 accelerators"),
    ("actor_rollout_ref.actor.ulysses_sequence_parallel_size=3", "does not divide the 16 accelerators"),
    ("trainer.logger=['file']", "without console, the status of the job has no progress"),
    ("trainer.logger=['console','wandb']", "wandb needs WANDB_API_KEY, which no variable of the job gives"),
    ("data.train_files=~/data/a.parquet", "is in the home folder of the image's user, which is on no volume"),
    ("data.train_files=../data/a.parquet", "is relative to the working directory of the image; use an absolute path"),
    ("data.val_files=[/mnt/rlt/a.parquet,/data/b.parquet]", "/data/b.parquet is on no volume of the job (/mnt/rlt)"),
    ("trainer.save_freq=10", "trainer.default_local_dir is checkpoints in the working directory by default"),
    ("trainer.default_hdfs_dir=hdfs://a/b", "needs an HDFS client in the image"),
    ("trainer.wandb_proxy=http://p:1", "is not in the config of verl 0.9.1, which reads it; put a + before it"),
    ("actor_rollout_ref.actor.fsdp_config.sharding_strategy=FULL_SHARD", "verl 0.9.1 does not have it: FULL_SHARD"),
    ("actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2", "is a key of model_engine=megatron, and the"),
    ("actor_rollout_ref.rollout.gpu_memory_utilization=0.95", "leaves 5% of the device to NCCL, CUDA and the training"),
    ("trainer.total_training_steps=7", "spec.framework.totalSteps is 5"),
    ("trainer.default_local_dir=/data/out", "is not below spec.storage.mountPath /mnt/rlt: checkpoints are lost"),
    ("data.train_files=/data/a.parquet", "/data/a.parquet: is on no volume of the job (/mnt/rlt); it must be in"),
    ("ray_kwargs.ray_init.num_cpus=8", "Ray already runs; use spec.cluster.workers[].numCpus"),
    ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=7", "does not divide the 16 responses of a device"),
    ("actor_rollout_ref.rollout.gpu_memory_utilization=1.9", "it must be above 0 and at most 1"),
    (
        "actor_rollout_ref.rollout.max_model_len=1000",
        "is less than data.max_prompt_length 512 + data.max_response_length 512; use 1024 or more",
    ),
]
"""An argument, and a part of its warning."""


def warn(*arguments: str) -> list[str]:
    """The errors and the warnings about a command."""
    changes = {"framework.totalSteps": 5, "storage.claimName": "c"}
    command = [*VERL, *NODES, *arguments]
    errors = [str(each) for each in validate_job("sum", job(command, **gpus(8, 2), **changes)).findings]
    return [*errors, *warnings(*NODES, *arguments, **changes)]


@pytest.mark.parametrize(("argument", "expected"), WARNED)
def test_an_argument_is_warned_about(argument: str, expected: str) -> None:
    found = warn(argument)
    assert found
    assert expected in found[0]


def apply_fix(argument: str, warning: str) -> str | None:
    """The argument with the fix of the warning; None if the fix needs a decision."""
    key, _, value = argument.partition("=")
    if name := re.search(r"did you mean ([\w.]+)\?|has ([\w.]+) instead", warning):
        return f"{name[1] or name[2]}={value}"
    if number := re.search(r"; use (?:([\w.]+)=)?(\d+(?:\.\d+)?)", warning):
        return f"{key}={number[2]}" if number[1] in (None, key) else None
    if "remove the +" in warning:
        return argument.removeprefix("+")
    if "put a + before it" in warning:
        return f"+{argument}"
    return None


FIXED = [(argument, fixed) for argument, _ in WARNED if (fixed := apply_fix(argument, warn(argument)[0]))]


@pytest.mark.parametrize(("argument", "fixed"), FIXED)
def test_the_fix_of_a_warning_resolves_it(argument: str, fixed: str) -> None:
    assert warn(fixed) == warn(), "the other warnings are those without the argument"


def test_idle_accelerators_are_warned_about() -> None:
    (found,) = warnings("trainer.nnodes=1")
    assert "8 of the 16 accelerators are not used (2 pods with 8 nvidia.com/gpu)" in found


@pytest.mark.parametrize("name", ["strategy", "fsdp_config.strategy", "fsdp_config.fsdp_size"])
def test_actor_and_reference_that_are_sharded_differently_are_warned_about(name: str) -> None:
    actor = f"actor_rollout_ref.actor.{name}="
    reference = f"actor_rollout_ref.ref.{name}="
    known = (*NODES, "actor_rollout_ref.rollout.n=8")
    (found,) = warnings(*known, f"{actor}2", f"{reference}4")
    assert found.startswith(f"spec.framework.command[7]: {reference}4: ")
    assert found.endswith("use 2")
    assert warnings(*known, f"{actor}4", f"{reference}4") == warnings(*known, f"{reference}4") == []


def test_the_lengths_of_the_engine_have_precedence() -> None:
    rollout = "actor_rollout_ref.rollout"
    lengths = (f"{rollout}.max_model_len=1000", f"{rollout}.prompt_length=256", f"{rollout}.response_length=256")
    assert warnings(*NODES, "actor_rollout_ref.rollout.n=8", *lengths) == []


ASYNC = ["python3", "-m", "verl.experimental.fully_async_policy.fully_async_main", "foo.bar=1"]
ONE_STEP_OFF = ["python3", "/w/recipe/one_step_off_policy/main_ppo.py", "foo.bar=1"]


@pytest.mark.parametrize("program", [ASYNC, ONE_STEP_OFF])
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ((2, 8, 1, 8), "training and engines need 24 accelerators, and the job has 16 (2 pods with 8 nvidia.com/gpu)"),
        ((1, 4, 1, 8), ": 4 are not used"),
        ((1, 8, 1, 8), None),
        ((2, 4, 2, 4), None),
    ],
)
def test_verl_experimental_engines_have_separate_devices(
    program: list[str], nodes: tuple[int, ...], expected: str | None
) -> None:
    keys = ("trainer.nnodes", "trainer.n_gpus_per_node", "rollout.nnodes", "rollout.n_gpus_per_node")
    arguments = [f"{key}={value}" for key, value in zip(keys, nodes, strict=True)]
    arguments.append("actor_rollout_ref.rollout.tensor_model_parallel_size=3")  # of the engines' devices
    command = [*program, *arguments]
    assert find(command, **gpus(8, 2)) == []
    errors = [str(each) for each in validate_job("sum", job(command, **gpus(8, 2))).findings]
    found = [*errors, *find_warnings(RLTrainingJobSpec.model_validate(job(command, **gpus(8, 2))))]
    assert len(found) == (expected is not None)
    assert not expected or expected in found[0]
    assert find([*program, "trainer.nnodes=9", "trainer.n_gpus_per_node=8"], **gpus(8, 2))


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "+data.extra=1",
            "hydra.run.dir=/x",
            "~critic.optim",
            "critic.optim.betas=[0.9,0.99]",
        ],
        ["--config-path=/x", "foo.bar=1"],
        ["data.train_batch_size=1024", "actor_rollout_ref.rollout.n=8", "trainer.logger=[console,tensorboard]"],
        ["model_engine=megatron", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"],
        ["--config-name=ppo_megatron_trainer", "actor_rollout_ref.actor.megatron.use_mbridge=True"],
        ["data.train_batch_size=100", "actor_rollout_ref.actor.ppo_mini_batch_size=$MINI"],
        [
            "actor_rollout_ref.actor.use_dynamic_bsz=True",
            "actor_rollout_ref.actor.ppo_mini_batch_size=$MINI",
            "data.train_batch_size=257",
        ],
    ],
)
def test_valid_arguments_have_no_warning(arguments: list[str]) -> None:
    known = [*NODES, "actor_rollout_ref.rollout.n=8"]
    assert warnings(*known, *arguments) == []


def test_a_warning_masks_secrets() -> None:
    (found,) = warnings(*NODES, "trainer.token=hf_abcdefghijklmnopqrstuvwxyz01234567")
    assert "trainer.token=***" in found


ROLL = ["python3", "examples/start_agentic_pipeline.py", "--config_path", "agentic", "--config_name", "sokoban"]
LAUNCHER = ["python3", "/etc/rlt/rlt_pod.pyz", "run-roll", "--config", "/mnt/rlt/config/rlvr.yaml", "--"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (ROLL, "spec.framework.command[1]: examples/start_agentic_pipeline.py: ROLL's driver needs a machine with"),
        (["bash", "-c", "cd /workspace/ROLL && python examples/start_sft_pipeline.py"], "spec.framework.command[2]: "),
        ([*LAUNCHER, *ROLL[:2]], None),
        (["bash", "-c", f"cd /workspace/ROLL && {' '.join([*LAUNCHER, *ROLL[:2]])}"], None),
        (["python3", "start_pipeline.py"], None),
    ],
)
def test_rolls_driver_does_not_run_on_the_head(command: list[str], expected: str | None) -> None:
    spec = RLTrainingJobSpec.model_validate(job(command, **gpus(8, 2)))
    found = [each for each in find_warnings(spec) if "ROLL" in each]
    assert [each[: len(expected or "")] for each in found] == ([expected] if expected else [])


def test_roll_nodes_have_the_same_number_of_devices() -> None:
    workers = [{**gpus(count)["cluster"]["workers"][0], "name": f"of-{count}"} for count in (8, 4)]
    spec = RLTrainingJobSpec.model_validate(job([*LAUNCHER, *ROLL[:2]], cluster={"workers": workers}))
    (warning,) = [each for each in find_warnings(spec) if "ROLL" in each]
    assert warning.startswith("spec.cluster.workers[1].accelerator.count: 4: all nodes of ROLL have the same number")


MOUNTED = {"storage.claimName": "c"}


@pytest.mark.parametrize(
    ("arguments", "changes", "expected"),
    [
        (["data.train_files=/mnt/rlt/x.parquet"], {}, "which starts empty in each pod: no volume outlives the pods"),
        (["data.train_files=/mnt/rlt/x.parquet"], MOUNTED, None),
        (["data.train_files=hdfs://a/x.parquet", "actor_rollout_ref.model.path=Qwen/Qwen3-0.6B"], MOUNTED, None),
        (
            ["trainer.save_freq=5", "trainer.default_local_dir=/mnt/rlt/c"],
            {},
            "each of the 2 pods has a part of a check",
        ),
        (["trainer.save_freq=5", "trainer.default_local_dir=/mnt/rlt/c"], MOUNTED, None),
        (["trainer.logger=[console,swanlab]"], MOUNTED, "swanlab needs SWANLAB_API_KEY"),
        (["trainer.logger=[console,wandb]"], env("WANDB_API_KEY"), None),
        (["trainer.logger=[console,wandb]"], {"cluster.env": [{"name": "WANDB_MODE", "value": "offline"}]}, None),
    ],
)
def test_places_that_end_with_the_pods_are_warned_about(
    arguments: list[str], changes: Any, expected: str | None
) -> None:
    found = warnings(*NODES, "actor_rollout_ref.rollout.n=8", *arguments, **merged(gpus(8, 2), changes))
    assert len(found) == (expected is not None), found
    assert not expected or expected in found[0]


DYNAMIC = ["actor_rollout_ref.actor.use_dynamic_bsz=True", "data.max_prompt_length=8192"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            [*DYNAMIC, "data.max_response_length=32768"],
            "is less than a prompt with its response, 40960 tokens, which verl",
        ),
        (
            [*DYNAMIC, "data.max_response_length=32768", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480"],
            "use 40960 or more",
        ),
        (
            [
                *(*DYNAMIC, "data.max_response_length=32768", "algorithm.adv_estimator=grpo"),
                *("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=20480",),
                *("actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",),
            ],
            None,
        ),
        ([*DYNAMIC, "data.max_response_length=8192"], None),
        (
            ["data.max_response_length=40000", "actor_rollout_ref.model.path=Qwen/Qwen3-0.6B"],
            "40512 tokens, and Qwen/Qwen3-0.6B has a context of 40960",
        ),
        (
            ["actor_rollout_ref.rollout.max_model_len=65536", "actor_rollout_ref.model.path=/mnt/m/Qwen3-0.6B"],
            "is more than the context of 40960 tokens that /mnt/m/Qwen3-0.6B has",
        ),
    ],
)
def test_lengths_are_compared_with_micro_batches_and_the_model(arguments: list[str], expected: str | None) -> None:
    found = [
        each for each in warnings(*NODES, "actor_rollout_ref.rollout.n=8", *arguments, **MOUNTED) if "token" in each
    ]
    assert bool(found) is bool(expected and "40512" not in expected)
    assert not found or (expected and expected in found[0])


def verl_0_9(*arguments: str, cpu: str = "32", replicas: int = 1) -> list[str]:
    workers = gpus(8, replicas)["cluster"]["workers"]
    workers[0]["resources"]["cpu"] = cpu
    cluster = {"image": "registry.example/verl:0.9.1", "workers": workers}
    command = [*VERL, f"trainer.nnodes={replicas}", "trainer.n_gpus_per_node=8", *arguments]
    given = job(command, cluster=cluster, **MOUNTED)
    errors = [str(each) for each in validate_job("sum", given).findings]
    return [*errors, *find_warnings(RLTrainingJobSpec.model_validate(given))]


@pytest.mark.parametrize(
    ("cpu", "arguments", "expected"),
    [
        ("16", [], "8 accelerators with 3 CPUs each need 24 CPUs of one pod, and a pod has 16 (num-cpus)"),
        ("32", [], "8 storage units of verl's V1 trainer and their controller need 33 CPUs, and the pods have 32"),
        ("40", [], "starts its 8 storage units on all Ray nodes in turn, also on the head"),
        ("40", ["++transfer_queue.backend.SimpleStorage.required_node_resource=CPU"], None),
        ("32", ["trainer.use_v1=False"], None),
    ],
)
def test_actors_need_cpus(cpu: str, arguments: list[str], expected: str | None) -> None:
    found = [each for each in verl_0_9("actor_rollout_ref.rollout.n=8", *arguments, cpu=cpu) if "CPU" in each]
    assert bool(found) is (expected is not None), found
    assert not expected or expected in found[0]


def test_keys_are_errors_if_the_image_names_the_version() -> None:
    (found,) = [each for each in verl_0_9("data.train_batchsize=512", cpu="64") if "train_batchsize" in each]
    assert found.startswith("spec.framework.command[5]: data.train_batchsize=512: is not a key of verl 0.9.1")
    errors = validate_job("sum", job([*VERL, "data.train_batchsize=512"], **gpus(8))).findings
    assert errors == ()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["torchrun", "--nnodes=2", "--nproc-per-node=8", "train.py"], True),
        (["python3", "-m", "torch.distributed.run", "--nnodes", "2:4", "train.py"], True),
        (["accelerate", "launch", "--num_machines=2", "train.py"], True),
        (["bash", "-c", "cd /w && deepspeed --hostfile=hosts train.py"], True),
        (["torchrun", "--nnodes=1:4", "train.py"], False),
        (["torchrun", "--standalone", "--nnodes=1", "train.py", "--nnodes=2"], False),
        (["torchrun", "--nnodes=$NODES", "train.py"], False),
    ],
)
def test_launchers_of_several_machines_are_rejected(command: list[str], expected: bool) -> None:
    found = [each for each in validate_job("sum", job(command)).findings if each.rule == "command-launcher"]
    assert bool(found) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["srun", "--nodes=2", "python3", "train.py"], "command[0]: srun: starts processes through a scheduler"),
        (["bash", "-c", "ray start --head && python3 train.py"], "ray start: the operator has started Ray on all pods"),
        (["torchrun", "--nproc_per_node=8", "train.py"], "torchrun: starts its processes on the head, which has no"),
        (["python3", "train.py", "--out=$HOME/x"], "$HOME is not replaced, because the command runs without a shell"),
        (["python3", "train.py", "~/x"], "~ is not replaced"),
        (["bash", "-c", "python3", "train.py"], "is the whole script of the shell"),
        (["python3", "train.py", "${a.b}", "$x"], None),
    ],
)
def test_commands_that_may_not_do_what_is_meant_are_warned_about(command: list[str], expected: str | None) -> None:
    found = list(find_warnings(RLTrainingJobSpec.model_validate(job(command, **gpus(8)))))
    assert bool(found) is (expected is not None), found
    assert not expected or expected in found[0]
