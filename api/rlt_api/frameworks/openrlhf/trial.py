"""OpenRLHF's arguments for the preflight check `training-step`: one step in a folder. Pure."""

from __future__ import annotations

from math import lcm

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.known_program import Shortened
from rlt_api.frameworks.openrlhf.options import has_known_options, read_integer
from rlt_api.frameworks.preflight import compute_batch, reject_trial

SIZES = (
    *("actor.num_nodes", "actor.num_gpus_per_node", "rollout.n_samples_per_prompt", "rollout.batch_size"),
    *("train.micro_batch_size", "rollout.micro_batch_size"),
)
"""Options that the batch depends on."""


def shorten(program: Program, directory: str) -> Shortened:
    """Build the options for the first step, and for a second start that resumes after it (OpenRLHF 0.11)."""
    if not has_known_options(program):
        return reject_trial("The options are for an OpenRLHF before 0.11.")
    numbers = [number for name in SIZES if (number := read_integer(program, name)) is not None]
    if len(numbers) < len(SIZES):
        return reject_trial("The batch or the number of accelerators is a variable.")
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
