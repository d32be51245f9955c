"""The spec of an RLRuntime, and the merge of a job and its runtime into one spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from rlt_api.blocks.cluster import Image, RayVersion
from rlt_api.blocks.resources import Accelerator, NodeSelector, Resources, Tolerations
from rlt_api.model import ApiModel, DnsLabel, KeyedBy, cel
from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import JobBlocks

DEFAULT_RAY_VERSION = "2.60.0"
"""Version of Ray in the images built from images/."""

LimitValue = Annotated[str, StringConstraints(max_length=1024)]


class Images(ApiModel):
    """The image for each kind of accelerator."""

    cpu: Image | None = None
    """For workers without accelerators."""
    nvidia: Image | None = None
    """For nvidia.com/… accelerators."""
    amd: Image | None = None
    """For amd.com/… accelerators."""


class NodePool(ApiModel):
    """Nodes of one kind, and the resources of a worker pod on them."""

    name: DnsLabel
    """Name of the pool, for cluster.workers[].pool of a job."""
    resources: Resources
    """Resources of a worker pod."""
    accelerator: Accelerator | None = None
    """Accelerators of a worker pod. Default: none."""
    node_selector: NodeSelector = {}
    """Labels of the pool's nodes."""
    tolerations: Tolerations = []
    """Tolerations for the taints of the pool's nodes."""


class Limit(ApiModel):
    """A limit on one field of every job that names the runtime."""

    model_config = cel(
        ("has(self.max) || has(self.min) || has(self.allowed)", "must have at least one of max, min and allowed"),
    )

    field: Annotated[str, StringConstraints(pattern=r"^spec(\.([a-zA-Z][a-zA-Z0-9]*|\*)(\[\])?)+$", max_length=253)]
    """Path of the field, such as spec.rollout.responsesPerPrompt or spec.cluster.workers[].replicas. [] stands for
    every item, and * for every field, also below a podTemplate: spec.cluster.*.podTemplate.spec.*[].image."""
    max: float | None = None
    """The maximum. A quantity such as 64Gi is compared as a number."""
    min: float | None = None
    """The minimum."""
    allowed: Annotated[list[LimitValue], Field(min_length=1, max_length=256)] | None = None
    """The allowed values, as text. A * matches anything, as in registry.example.com/*."""
    optional: bool = False
    """true: a job may omit the field. By default a limited field needs a value, from the job, from the runtime's
    defaults or as a fixed default, because a job without a deadline, for example, exceeds every deadline."""


class JobMaximum(ApiModel):
    """Maximums over all worker groups of a job."""

    model_config = cel(("has(self.workers) || has(self.accelerators)", "must have at least one field"))

    workers: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Maximum number of workers: the sum of replicas, and of maxReplicas where a group has it."""
    accelerators: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Maximum number of accelerators: the sum of these numbers times accelerator.count."""


class NamespaceMaximum(ApiModel):
    """Maximums over the Ray clusters of a namespace."""

    accelerators: Annotated[int, Field(ge=0, le=1_000_000)]
    """Maximum number of accelerators of all Ray clusters in the namespace, counted for the resources that the job
    requests. A job that exceeds it waits."""


PodTemplateLevel = Literal["any", "restricted", "forbidden"]


class RLRuntimeSpec(ApiModel):
    """Images, node pools, defaults and limits of the platform team for all jobs that name the runtime."""

    images: Images = Images()
    """The image for each kind of accelerator."""
    ray_version: RayVersion | None = None
    """Version of Ray in the images. Default: 2.60.0."""
    node_pools: Annotated[list[NodePool], Field(max_length=64), KeyedBy("name")] = []
    """Node pools, each with nodes of one kind. A worker group without a pool gets the first pool with the accelerator
    of the group, or the first pool."""
    defaults: JobBlocks = JobBlocks()
    """Values of fields that a job does not give, such as fabric, storage classes, queues and privileges."""
    limits: Annotated[list[Limit], Field(max_length=128)] = []
    """Limits on fields of the jobs."""
    max_per_job: JobMaximum | None = None
    """Maximums over all worker groups of a job. Default: none."""
    max_per_namespace: NamespaceMaximum | None = None
    """Maximums over the Ray clusters of a job's namespace. They apply when a Ray cluster is created or gets more pods,
    with the present value in the RLRuntime. Default: none."""
    pod_template: PodTemplateLevel = "restricted"
    """What the podTemplates of a job may set. restricted: labels, affinity to pods of the same namespace,
    topologySpreadConstraints, hostAliases, dnsConfig, enableServiceLinks, volumes without access to the node, and the
    volumeMounts, ports and workingDir of the operator's container, so that limits on other fields hold. forbidden:
    nothing. any: every field, also those that other fields of the job set. podTemplates in defaults are not
    restricted."""


TRAINING_BLOCKS = ("model", "data", "rewards", "algorithm", "training", "evaluation", "rollout", "checkpoint")
"""Blocks that a command does not use."""
GENERATION_BLOCKS = ("rewards", "algorithm", "rollout")
"""Blocks whose defaults a job with algorithm.dpo does not use."""

Kind = Literal["cpu", "nvidia", "amd"]


def resolve(job: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge the specs of a job and its runtime, as JSON. The job's values override the runtime's, and these the
    defaults that depend on the accelerators.

    Objects are merged field by field, and environment variables by name. If the job gives one of several exclusive
    fields, the runtime's other ones are dropped. Other lists and values are replaced. Neither input is changed.
    """
    runtime = runtime or {}
    defaults = dict(runtime.get("defaults", {}))
    if job.get("framework", {}).get("type", "builtin") == "command":
        for block in TRAINING_BLOCKS:
            defaults.pop(block, None)
    if "dpo" in job.get("algorithm", {}):
        for block in GENERATION_BLOCKS:
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
    return add_accelerator_defaults(spec)


def list_accelerators(runtime: Mapping[str, Any]) -> list[str]:
    """Return the accelerator resources of the node pools, sorted."""
    return sorted({name for pool in runtime.get("nodePools", []) if (name := _resource_name(pool))})


def _main_accelerator(groups: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the accelerator that determines the image: all pods have the same image."""
    return next((group["accelerator"] for group in groups if group.get("accelerator")), None)


def accelerator_kind(accelerator: Mapping[str, Any] | None) -> Kind | None:
    """Return the kind of image for an accelerator; None if no image exists for it."""
    if accelerator is None:
        return "cpu"
    vendor = str(accelerator.get("resourceName", "")).partition("/")[0]
    kinds: dict[str, Kind] = {"nvidia.com": "nvidia", "amd.com": "amd"}
    return kinds.get(vendor)


EXCLUSIVE_FIELDS = (
    frozenset({"path", "fromSeed"}),  # model
    frozenset({"preset", "files", "hub", "inline"}),  # data
)
"""Fields of which a block has exactly one: the one in the job replaces the one in the runtime."""


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for choice in EXCLUSIVE_FIELDS:
        if choice & set(above):
            for other in choice - set(above):
                merged.pop(other, None)
    for name, value in above.items():
        under = merged.get(name)
        merged[name] = _merge(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def _from_pool(group: Mapping[str, Any], pools: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge a worker group with its pool. If the named pool does not exist, return the group unchanged."""
    if "pool" in group:
        matching = [pool for pool in pools if pool["name"] == group["pool"]]
    else:
        wanted = _resource_name(group)
        matching = [pool for pool in pools if wanted and _resource_name(pool) == wanted] or pools
    if not matching:
        return dict(group)
    given = {key: value for key, value in matching[0].items() if key != "name"}
    return {**_merge(given, group), "pool": matching[0]["name"]}


def _resource_name(of: Mapping[str, Any]) -> str | None:
    """Return the accelerator resource of a worker group or a node pool."""
    return (of.get("accelerator") or {}).get("resourceName")
