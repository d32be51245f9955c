"""Where verl's arguments read and write: files, models, checkpoints and trackers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.devices import read_verl_number
from rlt_api.frameworks.command.problem import Problem
from rlt_api.rules.storage import describe_missing_volume
from rlt_api.spec.job_spec import RLTrainingJobSpec

FILES = ("data.train_files", "data.val_files")
MODELS = (
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.model.tokenizer_path",
    "critic.model.path",
    "reward.reward_model.model_path",
    "trainer.resume_from_path",
    "reward.custom_reward_function.path",
    "custom_reward_function.path",
)
LOCAL_DIR = "trainer.default_local_dir"
SAVE_FREQ = "trainer.save_freq"
LOGGER = "trainer.logger"
KEYS: Mapping[str, str] = {
    "wandb": "WANDB_API_KEY",
    "swanlab": "SWANLAB_API_KEY",
    "clearml": "CLEARML_API_ACCESS_KEY",
    "comet_ml": "COMET_API_KEY",
}
"""Tracker -> the variable with its key."""
OFFLINE = {"WANDB_MODE": ("offline", "disabled", "dryrun"), "SWANLAB_MODE": ("local", "offline", "disabled")}
REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


def list_place_problems(program: Program, spec: RLTrainingJobSpec) -> Iterator[Problem]:
    """List the places that the pods do not have, or that end with them."""
    for key in (*FILES, *MODELS):
        value = program.values.get(key)
        if isinstance(value, str):
            for path in split_list(value):
                if message := _describe_place(key, path, spec):
                    yield Problem(key, message if path == value else f"{path} {message}")
    yield from _list_checkpoint_problems(program, spec)
    yield from _list_missing_keys(program, spec)
    hdfs = program.values.get("trainer.default_hdfs_dir")
    if isinstance(hdfs, str) and hdfs:
        yield Problem("trainer.default_hdfs_dir", "needs an HDFS client in the image; or use a volume, and remove it")


def split_list(value: str) -> list[str]:
    """Split a value of Hydra into its items: a list in brackets, or one text."""
    if value.startswith("[") and value.endswith("]"):
        return [item for each in value[1:-1].split(",") if (item := each.strip().strip("'\""))]
    return [value]


def _describe_place(key: str, path: str, spec: RLTrainingJobSpec) -> str | None:
    fix = f"use an absolute path below spec.storage.mountPath {spec.storage.mount_path}"
    if REMOTE.match(path) or "$" in path:
        return None
    if path.startswith("~"):
        return f"is in the home folder of the image's user, which is on no volume; {fix}"
    if not path.startswith("/"):
        is_relative = key in FILES or path.startswith(("./", "../"))
        return f"is relative to the working directory of the image; {fix}" if is_relative else None
    if problem := describe_missing_volume(path, spec):
        return problem
    mount = spec.storage.mount_path.rstrip("/")
    is_below = f"{path}/".startswith(f"{mount}/")
    if is_below and not spec.storage.outlives_pods and not spec.framework.prepare:
        return f"is in {mount}, which starts empty in each pod: no volume outlives the pods; set storage.claimName"
    return None


def _list_checkpoint_problems(program: Program, spec: RLTrainingJobSpec) -> Iterator[Problem]:
    folder = program.values.get(LOCAL_DIR)
    mount = spec.storage.mount_path.rstrip("/")
    save_freq = read_verl_number(program, SAVE_FREQ) or 0
    if spec.storage.outlives_pods:
        if isinstance(folder, str) and not f"{folder}/".startswith(f"{mount}/"):
            yield Problem(LOCAL_DIR, f"is not below spec.storage.mountPath {mount or '/'}: checkpoints are lost")
        elif LOCAL_DIR not in program.given and save_freq > 0:
            message = (
                f"{LOCAL_DIR} is checkpoints in the working directory by default, on no volume: checkpoints are lost; "
                f"set it below spec.storage.mountPath {mount}"
            )
            yield Problem(SAVE_FREQ, message)
    elif save_freq > 0:
        pods = sum(group.replicas for group in spec.cluster.workers)
        parts = f": each of the {pods} pods has a part of a checkpoint" if pods > 1 else ""
        message = f"no volume outlives the pods, and checkpoints are lost with them{parts}; set storage.claimName"
        yield Problem(LOCAL_DIR if LOCAL_DIR in program.given else SAVE_FREQ, message)


def _list_missing_keys(program: Program, spec: RLTrainingJobSpec) -> Iterator[Problem]:
    """A tracker without its key ends the run after its start. An image or envFrom of a podTemplate may have it."""
    given = {variable.name: variable.value or "" for variable in spec.cluster.env}
    templates = [spec.cluster.head.pod_template, *(group.pod_template for group in spec.cluster.workers)]
    logger = program.values.get(LOGGER)
    if not isinstance(logger, str) or any("env" in str(template) for template in templates):
        return
    for tracker in split_list(logger):
        name = KEYS.get(tracker.removeprefix("vemlp_"))
        offline = any(given.get(variable) in values for variable, values in OFFLINE.items())
        has_block = tracker.endswith("wandb") and spec.observability.wandb is not None
        if name and name not in given and not offline and not has_block:
            field = "observability.wandb.apiKey" if name == "WANDB_API_KEY" else f"{name} from a Secret in cluster.env"
            message = f"{tracker} needs {name}, which no variable of the job gives: it ends the run; set {field}"
            yield Problem(LOGGER, message)
