"""Models, data and a checkpoint in a bucket: paths such as s3://bucket/models/Qwen3-8B, which a step of
framework.prepare downloads.

The step puts an object at ROOT/BUCKET/KEY. In the resolved spec, which all later readers have, the paths are these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlt_api.blocks.framework import PrepareStep
from rlt_api.model import UnreadableFieldError
from rlt_api.spec.hub_downloads import DOWNLOAD
from rlt_api.spec.job_spec import RLTrainingJobSpec

SCHEME = "s3://"
STEP = "download-objects"
NODES = "--nodes="
"""The option with which the step downloads to the disk of each pod."""
URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/(?!\.{1,2}(/|$))[\w.=+@-]+)+/?", re.ASCII)
"""Bucket, and the key of an object or of a folder."""
BLOCKS = {"model", "algorithm", "rewards", "data", "evaluation", "checkpoint"}
Kind = Literal["model", "data", "checkpoint"]
"""What the objects of a path are: an option of the step."""


@dataclass(frozen=True)
class ObjectPath:
    """A path in a spec that begins with s3://."""

    field: str
    url: str
    kind: Kind
    owner: Any
    """The part of the spec in JSON that has it."""
    key: str | int
    """Its key in `owner`."""


def is_object_url(path: str) -> bool:
    """Whether the path names objects of a bucket."""
    return URL.fullmatch(path) is not None


def list_objects(spec: RLTrainingJobSpec) -> list[ObjectPath]:
    """List the paths of models, data and a checkpoint that begin with s3://.

    Raises UnreadableFieldError if the value of a path is unknown.
    """
    dumped = spec.model_dump(mode="json", by_alias=True, include=BLOCKS)
    try:
        return list(_find(dumped))
    except KeyError as error:  # pydantic leaves out a field that was set aside
        raise UnreadableFieldError(str(error)) from error


def find_root(spec: RLTrainingJobSpec) -> str:
    """Find the folder of the downloads: on a volume that the job writes to, else on the disk of each pod."""
    cache = spec.storage.model_cache
    return f"{(cache.mount_path if _has_cache(spec) and cache else spec.storage.mount_path).rstrip('/')}/s3"


def is_on_volume(spec: RLTrainingJobSpec) -> bool:
    """Whether all pods share the folder of the downloads."""
    return _has_cache(spec) or spec.storage.outlives_pods


def build_object_step(spec: RLTrainingJobSpec) -> PrepareStep | None:
    """Build the step that downloads the objects. None without such paths, and for a job of checks alone."""
    paths = list_objects(spec)
    if not paths or spec.preflight.only:
        return None
    command = [*DOWNLOAD, "--to", find_root(spec)]
    if spec.storage.endpoint:
        command += ["--endpoint", spec.storage.endpoint]
    if not is_on_volume(spec):
        command.append(f"{NODES}{1 + sum(group.replicas for group in spec.cluster.workers)}")
    added: set[str] = set()
    for path in paths:
        if path.url not in added:
            command += [f"--{path.kind}", f"{path.field}={path.url}"]
            added.add(path.url)
    return PrepareStep(name=STEP, command=command)


def downloads_to_each_pod(spec: RLTrainingJobSpec) -> bool:
    """Whether a step of the resolved spec downloads objects in each pod."""
    return any(word.startswith(NODES) for step in spec.framework.prepare for word in step.command)


def replace_by_files(resolved: Mapping[str, Any], root: str) -> None:
    """Replace the paths in a spec in JSON by paths of files."""
    for path in list(_find(resolved)):
        path.owner[path.key] = f"{root}/{path.url[len(SCHEME) :].rstrip('/')}"


def _has_cache(spec: RLTrainingJobSpec) -> bool:
    cache = spec.storage.model_cache
    return cache is not None and not cache.read_only


def _find(spec: Mapping[str, Any]) -> Iterator[ObjectPath]:
    for field, kind, owner, key in list_places(spec):
        path = owner[key]
        if isinstance(path, str) and path.startswith(SCHEME):
            yield ObjectPath(field, path, kind, owner, key)


def list_places(spec: Mapping[str, Any]) -> Iterator[tuple[str, Kind, Any, str | int]]:
    """Yield the field of each path in a spec in JSON, what it is, the part that has it, and its key there.

    Fields without a value are null. Raises KeyError if one is missing.
    """
    algorithm = spec["algorithm"]
    owners: list[tuple[str, Kind, Any, str]] = [
        ("spec.model", "model", spec["model"], "path"),
        *((f"spec.algorithm.{name}", "model", algorithm[name], "modelPath") for name in ("critic", "distillation")),
        *((f"spec.rewards[{index}]", "model", reward, "model") for index, reward in enumerate(spec["rewards"] or [])),
        ("spec.checkpoint", "checkpoint", spec["checkpoint"], "resumeFromPath"),
    ]
    suites = [(f"spec.evaluation[{n}].data", each["data"]) for n, each in enumerate(spec["evaluation"] or [])]
    for field, data in [("spec.data", spec["data"]), *suites]:
        owners.append((field, "data", data, "path"))
    for field, kind, owner, key in owners:
        if owner is not None:
            yield f"{field}.{key}", kind, owner, key
    for field, data in [("spec.data", spec["data"]), *suites]:
        files = data["files"] if data else None
        for index in range(len(files or [])):
            yield f"{field}.files[{index}]", "data", files, index
