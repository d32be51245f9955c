"""verl's arguments for the preflight check `training-step`: one step in a folder. Pure.

Settings that verl may not have in every version are only changed if the command gives them.
"""

from __future__ import annotations

from math import lcm

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.devices import DEVICES, NODES, read_verl_number
from rlt_api.frameworks.known_program import Shortened
from rlt_api.frameworks.preflight import compute_batch, reject_trial

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


def shorten(program: Program, directory: str) -> Shortened:
    """Build the overrides for the first step, and for a second start that resumes after it (verl 0.5 to 0.9)."""
    if program.own_config:
        return reject_trial("The program reads its own config, so that its batch is unknown.")
    nodes, devices, responses, prompts = (
        read_verl_number(program, key) for key in (NODES, DEVICES, f"{ROLLOUT}.n", BATCH)
    )
    if not (nodes and devices and responses and prompts):
        return reject_trial("The batch or the number of accelerators is a variable.")
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
