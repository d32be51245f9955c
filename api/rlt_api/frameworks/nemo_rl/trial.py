"""NeMo-RL's overrides for the preflight check `training-step`: one step in a folder. Pure.

All sizes that the batch depends on are given, so that the YAML file need not be known: ++ also adds a key.
"""

from __future__ import annotations

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.demand import read_number
from rlt_api.frameworks.known_program import Shortened
from rlt_api.frameworks.preflight import reject_trial

RESPONSES = "grpo.num_generations_per_prompt"
DEFAULT_RESPONSES = 2
"""Responses to a prompt, if the arguments do not give them: an advantage compares at least two."""


def shorten(program: Program, directory: str) -> Shortened:
    """Build the overrides for the first step, and for a second start, which resumes by itself (NeMo-RL 0.6)."""
    if program.part != "grpo":
        return reject_trial("The step of NeMo-RL's programs other than GRPO is not known.")
    nodes = read_number(program, "cluster.num_nodes", None)
    devices = read_number(program, "cluster.gpus_per_node", None)
    responses = read_number(program, RESPONSES, DEFAULT_RESPONSES)
    if not (nodes and devices and responses):
        return reject_trial("cluster.num_nodes and cluster.gpus_per_node are not in the arguments.")
    settings = {
        "grpo.num_prompts_per_step": nodes * devices,
        RESPONSES: responses,
        "grpo.val_period": 0,
        "grpo.val_at_start": "false",
        "grpo.val_at_end": "false",
        "grpo.use_dynamic_sampling": "false",
        "policy.train_global_batch_size": nodes * devices * responses,
        "policy.train_micro_batch_size": 1,
        "policy.logprob_batch_size": 1,
        "checkpointing.enabled": "true",
        "checkpointing.checkpoint_dir": f"{directory}/checkpoints",
        "checkpointing.save_period": 1,
        "checkpointing.metric_name": "null",
        "logger.log_dir": f"{directory}/logs",
        **{f"logger.{name}_enabled": "false" for name in ("wandb", "tensorboard", "mlflow", "swanlab")},
    }
    starts = ({**settings, "grpo.max_num_steps": steps} for steps in (1, 2))
    first, second = ([f"++{key}={value}" for key, value in each.items()] for each in starts)
    return first, second
