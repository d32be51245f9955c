"""The latest checkpoint of a known program, from the files that it writes after each one, and the exported model."""

from __future__ import annotations

import glob
import os
import re

TRACKERS = ("latest_checkpointed_iteration.txt", "_actor/latest", "latest_ckpt_global_step.txt")
"""Files in the folder of the checkpoints: of verl and Megatron (slime, Miles) with the step
(verl/trainer/ppo/ray_trainer.py, _save_checkpoint), of DeepSpeed with the name global_stepN
(openrlhf/trainer/ppo_trainer.py, save_logs_and_checkpoints), of SkyRL with the step (skyrl/train/trainer.py)."""
LAST_FILES = ("step_*/training_info.json", "checkpoint-*/trainer_state.json", "step_*/trainer/.metadata")
"""A file of each complete checkpoint: of NeMo-RL, which renames the folder at the end (nemo_rl/utils/checkpoint.py), of
transformers.Trainer, which writes it last (TRL), and of torch.distributed.checkpoint (prime-rl,
prime_rl/trainer/ckpt.py), which writes it last."""
ROLL_STATES = "*/checkpoint-*/pipeline/worker_state_pipeline.json"
"""ROLL's folders: the time when an attempt starts, and the step, which begins at 0 (roll/configs/base_config.py,
roll/utils/upload_utils.py, ROLL 0.3.0). The state of the pipeline is the last part of a checkpoint that is copied to
it, if async_upload is false (do_checkpoint in roll/pipeline/base_pipeline.py)."""


def read_latest_step(directory: str) -> int | None:
    """Read the step of the latest complete checkpoint. None if there is none, or if the file cannot be read."""
    for tracker in TRACKERS:
        try:
            with open(os.path.join(directory, tracker)) as file:
                found = re.fullmatch(r"(?:best_)?(?:global_step)?([0-9]{1,18})\s*", file.read(64))
        except (OSError, ValueError):
            continue
        if found:
            return int(found[1])
    latest = find_roll_checkpoint(directory)
    return latest[0] if latest else _find_last_folder(directory)


def _find_last_folder(directory: str) -> int | None:
    """Find the highest step of the folders with one of LAST_FILES."""
    steps = []
    for pattern in LAST_FILES:
        for path in glob.glob(os.path.join(glob.escape(directory), pattern)):
            found = re.match(r"(?:step_|checkpoint-)([0-9]{1,18})/", os.path.relpath(path, directory))
            steps += [int(found[1])] if found else []
    return max(steps, default=None)


def find_roll_checkpoint(directory: str) -> tuple[int, str] | None:
    """Find the latest complete checkpoint of ROLL: the latest attempt's with one. Return the number of completed
    steps and its folder."""
    checkpoints = []
    for path in glob.glob(os.path.join(glob.escape(directory), ROLL_STATES)):
        folder = os.path.dirname(os.path.dirname(path))
        attempt, name = folder.split(os.sep)[-2:]
        found = re.fullmatch(r"checkpoint-([0-9]{1,18})", name)
        if found and re.fullmatch(r"[0-9]{8}-[0-9]{6}", attempt):
            checkpoints.append((attempt, int(found[1]) + 1, folder))
    return max(checkpoints)[1:] if checkpoints else None


def is_model(directory: str) -> bool:
    """Return whether the folder has a model in Hugging Face format. A folder with only an adapter has none."""
    return os.path.isfile(os.path.join(directory, "config.json"))
