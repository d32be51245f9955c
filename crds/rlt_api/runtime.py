"""RLRuntime: what the platform team decides once for all jobs, and how a job and its runtime become one spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from rlt_api.blocks.cluster import Image, RayVersion
from rlt_api.blocks.resources import Accelerator, NodeSelector, Resources, Tolerations
from rlt_api.model import ApiModel, DnsLabel, KeyedBy, cel
from rlt_api.spec import JobBlocks

DEFAULT_RAY_VERSION = "2.60.0"
"""The version in the images that images/ builds."""

LimitValue = Annotated[str, StringConstraints(max_length=1024)]


class Images(ApiModel):
    """The trainer's image for each kind of accelerator."""

    cpu: Image | None = None
    """For workers without accelerators."""
    nvidia: Image | None = None
    """For nvidia.com/… accelerators."""
    amd: Image | None = None
    """For amd.com/… accelerators."""


class NodePool(ApiModel):
    """Nodes of one kind, and what a worker pod takes of one."""

    name: DnsLabel
    """What a job's worker group calls it."""
    resources: Resources
    """What a worker pod asks for."""
    accelerator: Accelerator | None = None
    """Accelerators of a worker pod. Default: none."""
    node_selector: NodeSelector = {}
    """Labels of the pool's nodes."""
    tolerations: Tolerations = []
    """Taints of the pool's nodes."""


class Limit(ApiModel):
    """A bound on one field of every job that names the runtime."""

    model_config = cel(
        ("has(self.max) || has(self.min) || has(self.allowed)", "give at least one of max, min and allowed"),
    )

    field: Annotated[str, StringConstraints(pattern=r"^spec(\.[a-zA-Z][a-zA-Z0-9]*(\[\])?)+$", max_length=253)]
    """Its path, such as spec.rollout.responsesPerPrompt or spec.cluster.workers[].replicas."""
    max: float | None = None
    """The greatest value. A quantity such as 64Gi is compared as a number."""
    min: float | None = None
    """The least value."""
    allowed: Annotated[list[LimitValue], Field(min_length=1, max_length=256)] | None = None
    """The values that are allowed, as text. A * stands for anything, as in registry.example.com/*."""


class RLRuntimeSpec(ApiModel):
    """What the platform team decides once for all jobs."""

    images: Images = Images()
    """The trainer's image for each kind of accelerator."""
    ray_version: RayVersion | None = None
    """The version of Ray in the images. Default: 2.60.0."""
    node_pools: Annotated[list[NodePool], Field(max_length=64), KeyedBy("name")] = []
    """Nodes of one kind each. A worker group that names none gets the first with the accelerator that the group gives
    itself, else the first."""
    defaults: JobBlocks = JobBlocks()
    """What every job gets that does not say otherwise: fabric in network, classes and caches in storage, queue and
    scheduler in scheduling, users and privileges in security, and every other block."""
    limits: Annotated[list[Limit], Field(max_length=128)] = []
    """Bounds on fields of the jobs."""


BUILTIN_ONLY = ("model", "data", "rewards", "algorithm", "training", "rollout", "checkpoint")
"""Blocks that only the builtin trainer reads."""

Kind = Literal["cpu", "nvidia", "amd"]


def resolve(job: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> dict[str, Any]:
    """One spec out of a job's spec and its runtime's, as JSON: the job's word first, then the runtime's.

    Objects are merged field by field, and a choice (exactly one of several fields) by which field is given; environment
    variables by name; other lists and values are taken whole. Neither input is changed.
    """
    runtime = runtime or {}
    defaults = dict(runtime.get("defaults", {}))
    if job.get("framework", {}).get("type", "builtin") != "builtin":
        for block in BUILTIN_ONLY:
            defaults.pop(block, None)
    pools = runtime.get("nodePools", [])
    spec = _merge(defaults, job)
    cluster = spec.setdefault("cluster", {})
    own = job.get("cluster", {}).get("env", [])
    given = {each["name"] for each in own}
    below = defaults.get("cluster", {}).get("env", [])
    if env := [*own, *(each for each in below if each["name"] not in given)]:
        cluster["env"] = env
    cluster["workers"] = [_from_pool(group, pools) for group in cluster.get("workers", [{}])]
    if image := runtime.get("images", {}).get(accelerator_kind(_main_accelerator(cluster["workers"]))):
        cluster.setdefault("image", image)
    cluster.setdefault("rayVersion", runtime.get("rayVersion", DEFAULT_RAY_VERSION))
    return spec


def _main_accelerator(groups: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The one that the image is made for: all pods have the same image."""
    return next((group["accelerator"] for group in groups if group.get("accelerator")), None)


def accelerator_kind(accelerator: Mapping[str, Any] | None) -> Kind | None:
    """The image that an accelerator needs; None for one that there is no image for."""
    if accelerator is None:
        return "cpu"
    vendor = str(accelerator.get("resourceName", "")).partition("/")[0]
    kinds: dict[str, Kind] = {"nvidia.com": "nvidia", "amd.com": "amd"}
    return kinds.get(vendor)


CHOICES = (
    frozenset({"path", "fromSeed"}),  # model
    frozenset({"preset", "files", "hub", "inline"}),  # data
)
"""Fields that exclude each other: one in the job's block takes the place of the runtime's others."""


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for choice in CHOICES:
        if choice & set(above):
            for other in choice - set(above):
                merged.pop(other, None)
    for name, value in above.items():
        under = merged.get(name)
        merged[name] = _merge(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def _from_pool(group: Mapping[str, Any], pools: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A worker group with what its pool gives. Without a pool of that name it stays as it is, and a rule says so."""
    if "pool" in group:
        fitting = [pool for pool in pools if pool["name"] == group["pool"]]
    else:
        wanted = _resource_name(group)
        fitting = [pool for pool in pools if wanted and _resource_name(pool) == wanted] or pools
    if not fitting:
        return dict(group)
    given = {key: value for key, value in fitting[0].items() if key != "name"}
    return {**_merge(given, group), "pool": fitting[0]["name"]}


def _resource_name(of: Mapping[str, Any]) -> str | None:
    """The accelerator of a worker group or of a node pool."""
    return (of.get("accelerator") or {}).get("resourceName")
