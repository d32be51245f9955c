"""The scripts of `rlt render --target slurm|ray|docker` as the job that they came from.

The script writes the config of the trainer and the program as here-documents. The config has the worker groups, and so
do verl's arguments.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlt.convert.defaults import subtract_defaults
from rlt.convert.draft import Draft
from rlt.convert.rendered import add_training
from rlt.convert.roll import convert_roll
from rlt.convert.script import convert_script
from rlt_api.frameworks import roll
from rlt_api.training_config import CONFIG_FILE
from rlt_core.targets.launch import PROGRAM
from rlt_core.targets.shell import END_OF_FILE

Json = dict[str, Any]
FIRST_LINES = re.compile(r"# (\S+) on \d+ nodes?, rendered by `rlt render --target \w+`\.\n# (\S+) is a folder")
HERE_DOCUMENT = re.compile(rf"^cat > \S*/(\S+) <<'{END_OF_FILE}'\n(.*?)^{END_OF_FILE}$", re.M | re.S)
STEP = re.compile(r"/prepared-([a-z0-9-]+) \]; then\n(.*?)\n  touch ", re.S)
"""A step of framework.prepare in the program."""
IMAGE = re.compile(r"docker://(\S+)|--entrypoint=ray (\S+) start")
AMD = re.compile(r"--rocm|/dev/kfd|^ *(export |--env=)(HSA|RCCL)_", re.M)
"""What scripts for AMD's devices contain."""


def is_rendered_script(text: str) -> bool:
    """Whether `rlt render --target` wrote the script."""
    return FIRST_LINES.search(text[:1000]) is not None and END_OF_FILE in text


@dataclass(frozen=True)
class RenderedJob:
    """What a file of `rlt render --target` has of its job."""

    name: str
    image: str | None
    storage: str
    """The folder of checkpoints and results."""
    files: Mapping[str, str]
    """Name -> content of the program, and of the files that it reads."""
    is_amd: bool


def convert_rendered_script(text: str) -> Draft:
    """Convert the script of one job."""
    name, storage = FIRST_LINES.search(text).groups()  # type: ignore[union-attr]
    image = IMAGE.search(text)
    files = dict(HERE_DOCUMENT.findall(text))
    is_amd = AMD.search(text) is not None
    return convert_rendered_job(RenderedJob(name, image and (image[1] or image[2]), storage, files, is_amd=is_amd))


def convert_rendered_job(job: RenderedJob) -> Draft:
    """Convert the program and its config. Raises KeyError if both are missing."""
    files, draft = job.files, Draft(spec={"cluster": {"workers": [{}]}})
    accelerator = "amd.com/gpu" if job.is_amd else "nvidia.com/gpu"
    if CONFIG_FILE in files:
        config = json.loads(files[CONFIG_FILE])
        add_training(draft, config)
        draft.put("cluster.workers", list(_build_groups(draft, config, accelerator)))
    elif roll.CONFIG_FILE in files:
        draft = convert_roll(json.loads(files[roll.CONFIG_FILE]), "roll", roll.CONFIG_FILE)
        for worker in draft.get("cluster.workers"):
            worker["accelerator"] = {"resourceName": accelerator, **worker["accelerator"]}
    else:
        program = convert_script(STEP.sub("", files[PROGRAM]).replace("\nexec ", "\n"), "command")
        draft.put("framework", program.get("framework"))
        (worker,) = program.get("cluster.workers")
        devices = worker.get("accelerator", {}).get("count")
        draft.put("cluster.workers", [_build_group(worker.get("replicas"), devices, accelerator)])
    if steps := [{"name": step, "command": shlex.split(words)} for step, words in STEP.findall(files[PROGRAM])]:
        draft.put("framework.prepare", steps)
    if job.image:
        draft.put("cluster.image", job.image)
    draft.put("storage.mountPath", job.storage)
    draft.spec, draft.name = subtract_defaults(draft.spec), job.name
    draft.leave_out("CPUs and memory", "those of the nodes are for workers and head: set the resources of both")
    draft.leave_out("variables", "those of the operator and of the job are not distinguished: set spec.cluster.env")
    draft.leave_out("the volume", "it is a folder: set spec.storage.claimName")
    return draft


def _build_groups(draft: Draft, config: Json, accelerator: str) -> Iterator[Json]:
    """The worker groups that the trainer's workers came from."""
    train = _build_group(config["workers"], config["devicesPerWorker"], accelerator)
    if not config["rolloutWorkers"]:
        yield train
        return
    yield {"name": "train", **train}
    rollout = _build_group(config["rolloutWorkers"], config["rolloutDevicesPerWorker"], accelerator)
    yield {"name": draft.get("rollout.workerGroup"), **rollout}


def _build_group(replicas: int | None, devices: int | None, accelerator: str) -> Json:
    group: Json = {"replicas": replicas or 1}
    return group | ({"accelerator": {"resourceName": accelerator, "count": devices}} if devices else {})
