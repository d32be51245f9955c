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
    """List the paths of models, data and a checkpoint that begin with s3://."""
    return list(_find(spec.model_dump(mode="json", by_alias=True, include=BLOCKS)))


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
        path = owner[key] if isinstance(key, int) else owner.get(key)
        if isinstance(path, str) and path.startswith(SCHEME):
            yield ObjectPath(field, path, kind, owner, key)


def list_places(spec: Mapping[str, Any]) -> Iterator[tuple[str, Kind, Any, str | int]]:
    """Yield the field of each path in a spec in JSON, what it is, the part that has it, and its key there."""
    algorithm = spec.get("algorithm") or {}
    yield "spec.model.path", "model", spec.get("model") or {}, "path"
    for name in ("critic", "distillation"):
        yield f"spec.algorithm.{name}.modelPath", "model", algorithm.get(name) or {}, "modelPath"
    for index, reward in enumerate(spec.get("rewards") or []):
        yield f"spec.rewards[{index}].model", "model", reward, "model"
    yield "spec.checkpoint.resumeFromPath", "checkpoint", spec.get("checkpoint") or {}, "resumeFromPath"
    blocks = {"spec.data": spec.get("data")}
    blocks |= {f"spec.evaluation[{n}].data": each.get("data") for n, each in enumerate(spec.get("evaluation") or [])}
    for field, data in blocks.items():
        yield f"{field}.path", "data", data or {}, "path"
        files = (data or {}).get("files") or []
        for index in range(len(files)):
            yield f"{field}.files[{index}]", "data", files, index
