"""SkyRL's arguments for the preflight check `training-step`: one step in a folder. Pure."""

from __future__ import annotations

from math import lcm

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.demand import read_number
from rlt_api.frameworks.known_program import Shortened
from rlt_api.frameworks.preflight import compute_batch, reject_trial

PLACEMENT = "trainer.placement.policy_num"
MICRO = ("trainer.micro_train_batch_size_per_gpu", "trainer.micro_forward_batch_size_per_gpu")


def shorten(program: Program, directory: str) -> Shortened:
    """Build the settings for the first step, and for a second start that resumes after it (SkyRL 0.3).

    The responses of all accelerators also suit fewer shares (validate_batch_sizes in skyrl/train/utils/utils.py).
    """
    if program.own_config:
        return reject_trial("The program is not skyrl.train.entrypoints.main_base, so that its settings are unknown.")
    nodes = read_number(program, f"{PLACEMENT}_nodes", 1)
    devices = read_number(program, f"{PLACEMENT}_gpus_per_node", None)
    prompts = read_number(program, "trainer.train_batch_size", 1024)
    responses = read_number(program, "generator.n_samples_per_prompt", 5)
    micro = [read_number(program, key, 1) for key in MICRO]
    if not (nodes and devices and prompts and responses and all(micro)):
        return reject_trial("The batch or the number of accelerators is a variable, or not in the arguments.")
    batch = compute_batch(prompts, responses, lcm(*(nodes * devices * size for size in micro if size)))
    settings = {
        "trainer.train_batch_size": batch,
        "trainer.policy_mini_batch_size": batch,
        "trainer.critic_mini_batch_size": batch,
        "trainer.ckpt_interval": 1,
        "trainer.hf_save_interval": -1,
        "trainer.eval_interval": -1,
        "trainer.eval_before_train": "false",
        "trainer.logger": "console",
        "trainer.ckpt_path": f"{directory}/checkpoints",
        "trainer.export_path": f"{directory}/exports",
        "trainer.dump_data_batch": "false",
    }
    starts = (
        {**settings, "trainer.resume_mode": mode, "trainer.max_training_steps": step}
        for step, mode in ((1, "none"), (2, "latest"))
    )
    first, second = ([f"{key}={value}" for key, value in each.items()] for each in starts)
    return first, second
