"""The program of a resource, and the pods that run it."""

from __future__ import annotations

import re
import shlex
from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.pods import Pod
from rlt.convert.volumes import move_shared_claim

TORCHRUN = "torchrun's rendezvous belongs to the source's operator: a job runs the command once, on the head"
SHELL = re.compile(r"[$`|&;<>(){}\n]")


def split_command(text: str) -> list[str]:
    """Split a command line. One that needs a shell runs with bash."""
    try:
        return ["bash", "-c", text] if SHELL.search(text) else shlex.split(text)
    except ValueError:
        return ["bash", "-c", text]


def set_command(draft: Draft, words: list[Any]) -> None:
    """Set the program of the job. Without one, a comment."""
    if not words:
        draft.leave_out("the program", "the source names none: set spec.framework.command")
        return
    command = [str(word) for word in words]
    if any(re.search(r"(^|[\s/])torchrun(\s|$)", word) for word in command):
        draft.leave_out("torchrun", TORCHRUN)
    draft.put("framework.type", "command")
    draft.put("framework.command", command)


def set_groups(draft: Draft, groups: list[tuple[str, Any, Pod]], *, on_head: bool) -> None:
    """Set the worker groups (name, replicas, pod). Equal groups are one. `on_head`: the pods run the program, so that
    the head, where the job runs it, has their volumes and users."""
    if on_head and groups:
        move_shared_claim(draft, [pod for _, _, pod in groups])
        if head := groups[0][2].build_head():
            draft.put("cluster.head", head)
    workers: list[dict[str, Any]] = []
    for name, replicas, pod in groups:
        fields = pod.build("ray-worker")
        same = next((each for each in workers if _get_fields(each) == fields and _is_number(each, replicas)), None)
        if same:
            same["replicas"] += replicas
        else:
            workers.append({"name": _name_group(name, workers), "replicas": replicas, **fields})
    if len(workers) == 1 and len(groups) > 1 and on_head:
        workers[0]["name"] = "workers"
    if workers:
        draft.put("cluster.workers", workers)


def set_working_directory(draft: Draft, pod: Pod) -> None:
    """Move the working directory of the container to the program."""
    if directory := pod.container.pop("workingDir", None):
        draft.put("framework.workingDirectory", directory)


def _get_fields(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("name", "replicas")}


def _is_number(group: dict[str, Any], replicas: Any) -> bool:
    return isinstance(group["replicas"], int) and isinstance(replicas, int)


def _name_group(name: str, workers: list[dict[str, Any]]) -> str:
    valid = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "workers"
    taken = {each["name"] for each in workers}
    numbered = (f"{valid}-{number}" for number in range(2, len(workers) + 3))
    return next(each for each in (valid, *numbered) if each not in taken)
