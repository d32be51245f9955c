"""spec.cluster: the Ray cluster that KubeRay makes for the job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.blocks.resources import Accelerator, EnvVar, NodeSelector, Resources, Tolerations
from rlt_api.model import ApiModel, DnsLabel, JsonObject, KeyedBy, ObjectName, cel

Image = Annotated[str, StringConstraints(min_length=1, max_length=512)]
RayVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$", max_length=32)]


class Head(ApiModel):
    """The pod of Ray's head. It runs the driver and no training work."""

    resources: Resources = Resources(cpu="1", memory="4Gi")
    """What the head asks for. Default: cpu 1, memory 4Gi."""
    node_selector: NodeSelector = {}
    """Labels of the nodes that it may run on."""
    tolerations: Tolerations = []
    """Taints that it accepts."""
    pod_template: JsonObject = {}
    """A part of a pod template (metadata, spec) that is laid over the operator's own: the last word, for what has no
    field here. Containers are matched by name (ray-head)."""


class WorkerGroup(ApiModel):
    """Equal pods that train and generate, or do one of both."""

    name: DnsLabel = "workers"
    """The group's name."""
    pool: DnsLabel | None = None
    """The runtime's node pool: it gives accelerator, resources, nodeSelector and tolerations that are not given here.
    Default: the runtime's first one with the accelerator that is given here, else its first one."""
    replicas: Annotated[int, Field(ge=1, le=4096)] = 1
    """Number of pods. They are spread over nodes where possible."""
    resources: Resources | None = None
    """What each pod asks for. Default: the pool's."""
    accelerator: Accelerator | None = None
    """Accelerators of each pod. Default: the pool's; without a pool none, the pod trains on its CPU."""
    num_cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """CPUs that Ray counts on each pod: verl's ray_init.num_cpus. Default: whole CPUs of resources."""
    node_selector: NodeSelector = {}
    """Labels of the nodes that the pods may run on."""
    tolerations: Tolerations = []
    """Taints that the pods accept."""
    pod_template: JsonObject = {}
    """As for the head; the container is called ray-worker."""


class Cluster(ApiModel):
    """The Ray cluster, made by KubeRay for this job alone."""

    model_config = cel(
        (
            "!has(self.workers) || self.workers.all(one, self.workers.exists_one(other, "
            "(has(one.name) ? one.name : 'workers') == (has(other.name) ? other.name : 'workers')))",
            "worker groups must have different names",
        )
    )

    image: Image | None = None
    """The image of all pods. It holds Ray and the trainer (or what framework.command runs). Default: the runtime's for
    the workers' accelerator."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=16)] = []
    """Names of Secrets in the job's namespace with credentials of the image's registry."""
    ray_version: RayVersion | None = None
    """The version of Ray in the image. Default: the runtime's, else 2.60.0."""
    env: Annotated[list[EnvVar], Field(max_length=128), KeyedBy("name")] = []
    """Environment variables of all pods."""
    head: Head = Head()
    """The head's pod."""
    workers: Annotated[list[WorkerGroup], Field(min_length=1, max_length=8)] = [WorkerGroup()]
    """Groups of workers, each with a name of its own. One trains, and with rollout.mode separate another one
    generates; a command may use more."""
