"""slime's and Miles' options for the preflight check `training-step`: one rollout in a folder. Pure.

Options that contradict each other (slime_validate_args in slime/utils/arguments.py) are only changed if the command
gives them: a switch cannot be removed.
"""

from __future__ import annotations

from math import lcm, prod

from rlt_api.frameworks.arguments import Program, build_option_key
from rlt_api.frameworks.command.demand import read_number
from rlt_api.frameworks.known_program import Shortened
from rlt_api.frameworks.preflight import compute_batch, format_options, reject_trial

PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
"""Megatron's sizes whose product is the accelerators of a data-parallel share."""
NEVER = 10**9


def shorten(program: Program, directory: str) -> Shortened:
    """Build the options for the first rollout, and for a second start that resumes after it."""
    given = program.given
    if "ref_load" not in given:
        return reject_trial("Without --ref-load, a start without a checkpoint is unknown.")
    nodes = read_number(program, "actor_num_nodes", 1)
    devices = read_number(program, "actor_num_gpus_per_node", 8)
    prompts = read_number(program, "rollout_batch_size", None)
    responses = read_number(program, "n_samples_per_prompt", 1)
    micro = read_number(program, "micro_batch_size", 1)
    sizes = [read_number(program, name, 1) for name in PARALLEL]
    if not (nodes and devices and prompts and responses and micro and all(sizes)):
        return reject_trial("The batch or the number of accelerators is a variable.")
    size = prod(each for each in sizes if each)
    if nodes * devices % size:
        return reject_trial(f"The parallel sizes do not divide the {nodes * devices} accelerators.")
    batch = compute_batch(prompts, responses, lcm(nodes * devices // size * micro))
    changed = {
        "over-sampling-batch-size": batch,
        "global-batch-size": batch * responses,
        "num-steps-per-rollout": 1,
        "eval-interval": NEVER,
        "save-hf": f"{directory}/model",
        "dump-details": f"{directory}/details",
        "save-debug-rollout-data": f"{directory}/rollout-{{rollout_id}}.pt",
        "save-debug-train-data": f"{directory}/train-{{rollout_id}}.pt",
        "tensorboard-dir": f"{directory}/tensorboard",
    }
    settings = {
        "rollout-batch-size": batch,
        "save": f"{directory}/checkpoints",
        "load": f"{directory}/checkpoints",
        "save-interval": 1,
        **{name: value for name, value in changed.items() if build_option_key(name) in given},
        **({"wandb-mode": "disabled"} if "use_wandb" in given else {}),
    }
    switches = ["--skip-eval-before-train"] if "eval_interval" in given else []
    starts = (
        {**settings, "num-rollout": steps, **({"start-rollout-id": steps - 1} if "start_rollout_id" in given else {})}
        for steps in (1, 2)
    )
    first, second = ([*format_options(each), *switches] for each in starts)
    return first, second
