"""The program of the preflight stage training for other frameworks: one step in its own folder. Pure.

Settings that verl or OpenRLHF may not have in every version are only changed if the command gives them.
"""

from __future__ import annotations

from math import gcd, lcm

from rlt_api.frameworks.command.devices import DEVICES, NODES, read_verl_number
from rlt_api.frameworks.known_programs import Program, find_program, find_roll_script
from rlt_api.frameworks.openrlhf.options import has_known_options, read_integer
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.preflight_roll import build_roll_trial
from rlt_core.children.program import find_working_directory
from rlt_pod.preflight.expected import NotPossible, Trial

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
BATCH = "data.train_batch_size"
MINI_BATCH = f"{ACTOR}.ppo_mini_batch_size"
CRITIC_MINI_BATCH = "critic.ppo_mini_batch_size"
AGENT_WORKERS = f"{ROLLOUT}.agent.num_workers"
"""verl's number of agent workers. Each generates an equal share of the responses."""
DEFAULT_AGENT_WORKERS = 8
"""The default of `AGENT_WORKERS` in verl's rollout.yaml."""
DIVISORS = (f"{ACTOR}.ppo_micro_batch_size", "critic.ppo_micro_batch_size")
"""verl's settings that must divide the responses of a step. They have no default."""
DIVISORS_PER_DEVICE = (
    f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    "critic.ppo_micro_batch_size_per_gpu",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
)
"""Those that must divide the responses of a device."""
WITHOUT_SIDE_EFFECTS = {
    "trainer.rollout_data_dir": "null",
    "trainer.validation_data_dir": "null",
    "trainer.default_hdfs_dir": "null",
    "trainer.resume_from_path": "null",
    "trainer.val_only": "false",
    "trainer.critic_warmup": "0",
    "global_profiler.steps": "null",
    "ray_kwargs.timeline_json_file": "null",
    "ray_init.timeline_json_file": "null",
    "algorithm.filter_groups.enable": "false",
}
"""verl's settings that write elsewhere, or make more or less than one step, with a value that does neither."""
OPENRLHF_SIZES = (
    *("actor.num_nodes", "actor.num_gpus_per_node", "rollout.n_samples_per_prompt", "rollout.batch_size"),
    *("train.micro_batch_size", "rollout.micro_batch_size"),
)
"""OpenRLHF's options that the batch depends on."""
CHECK = "training-step"
REMEDY = "Set preflight.command to a program that trains for one step."


def build_trial(command: list[str], spec: RLTrainingJobSpec, directory: str) -> Trial | NotPossible:
    """Build the trial of a command in `directory`, or the reason why there is none, with what to do."""
    working_directory = find_working_directory(spec)
    if spec.preflight.command:
        return Trial(spec.preflight.command, None, directory, working_directory, prints_steps=False)
    if spec.framework.type == "roll":
        return build_roll_trial(spec, directory)
    if find_roll_script(command):
        return _reject("ROLL's config is in the image or on a volume, so that its batch is unknown.")
    program = find_program(command)
    if program is None:
        return _reject("The program is neither verl nor OpenRLHF.")
    if program.in_script:
        return _reject("The arguments of the program are part of a script.")
    if program.own_config:
        return _reject("The program reads its own config, so that its batch is unknown.")
    build = _shorten_verl if program.name == "verl" else _shorten_openrlhf
    shortened = build(program, command, directory)
    if isinstance(shortened, NotPossible):
        return shortened
    first, second = shortened
    return Trial([*command, *first], [*command, *second], directory, working_directory)


def compute_batch(prompts: int, responses: int, unit: int) -> int:
    """Compute the smallest number of prompts, of at most `prompts`, whose responses are a multiple of `unit`."""
    return min(prompts, unit // gcd(unit, responses))


def _reject(reason: str) -> NotPossible:
    return NotPossible(CHECK, "training", reason, REMEDY)


def _shorten_verl(program: Program, command: list[str], directory: str) -> tuple[list[str], list[str]] | NotPossible:
    """Overrides for the first step, and for a second start that resumes after it (verl 0.5 to 0.9)."""
    nodes, devices, responses, prompts = (
        read_verl_number(program, key) for key in (NODES, DEVICES, f"{ROLLOUT}.n", BATCH)
    )
    if not (nodes and devices and responses and prompts):
        return _reject("The batch or the number of accelerators is a variable.")
    count = nodes * devices
    divisors = [program.values.get(AGENT_WORKERS, DEFAULT_AGENT_WORKERS), *map(program.values.get, DIVISORS)]
    own = [count * size for size in map(program.values.get, DIVISORS_PER_DEVICE) if isinstance(size, int) and size]
    batch = compute_batch(
        prompts, responses, lcm(count, *own, *(size for size in divisors if isinstance(size, int) and size))
    )
    settings = {
        BATCH: batch,
        MINI_BATCH: batch,
        "trainer.save_freq": 1,
        "trainer.test_freq": -1,
        "trainer.val_before_train": "false",
        "trainer.logger": "[console]",
        "trainer.default_local_dir": f"{directory}/checkpoints",
        **({"hydra.run.dir": f"{directory}/hydra"} if "hydra.run.dir" in program.given else {}),
        **({CRITIC_MINI_BATCH: batch} if CRITIC_MINI_BATCH in program.given else {}),
        **{key: value for key, value in WITHOUT_SIDE_EFFECTS.items() if key in program.given},
    }
    starts = (
        {**settings, "trainer.resume_mode": mode, "trainer.total_training_steps": step, "trainer.total_epochs": step}
        for step, mode in ((1, "disable"), (2, "auto"))
    )
    first, second = ([f"{key}={value}" for key, value in each.items()] for each in starts)
    return first, second


def _shorten_openrlhf(
    program: Program, command: list[str], directory: str
) -> tuple[list[str], list[str]] | NotPossible:
    """Options for the first step, and for a second start that resumes after it (OpenRLHF 0.11)."""
    if not has_known_options(program):
        return _reject("The options are for an OpenRLHF before 0.11.")
    numbers = [number for name in OPENRLHF_SIZES if (number := read_integer(program, name)) is not None]
    if len(numbers) < len(OPENRLHF_SIZES):
        return _reject("The batch or the number of accelerators is a variable.")
    nodes, devices, responses, prompts, *micro = numbers
    batch = compute_batch(prompts, responses, lcm(*(nodes * devices * size for size in micro)))
    settings = {
        "rollout.batch_size": batch,
        "rollout.vllm_generate_batch_size": batch,
        "train.batch_size": batch * responses,
        "train.max_epochs": 1,
        "data.max_samples": batch,
        "eval.steps": -1,
        "eval.dataset": "",
        "ckpt.path": f"{directory}/checkpoints",
        "ckpt.output_dir": f"{directory}/model",
        "ckpt.save_steps": 1,
        "logger.tensorboard_dir": "",
        "logger.wandb.key": "",
    }
    first = [f"--{name}={value}" for name, value in {**settings, "train.num_episodes": 1}.items()]
    second = [f"--{name}={value}" for name, value in {**settings, "train.num_episodes": 2}.items()]
    return first, [*second, "--ckpt.load_enable"]
