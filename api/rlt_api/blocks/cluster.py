"""spec.cluster: the Ray cluster that KubeRay creates for the job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.blocks.resources import Accelerator, EnvVar, NodeSelector, Resources, Tolerations
from rlt_api.model import ApiModel, DnsLabel, JsonObject, KeyedBy, ObjectName, cel

Image = Annotated[str, StringConstraints(min_length=1, max_length=512)]
RayVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$", max_length=32)]


class Head(ApiModel):
    """The pod of the Ray head. It runs the driver and does not train."""

    resources: Resources = Resources(cpu="1", memory="4Gi")
    """Resources of the head pod. Default: cpu 1, memory 4Gi."""
    node_selector: NodeSelector = {}
    """Labels of the nodes that can run the pod."""
    tolerations: Tolerations = []
    """Tolerations of the pod."""
    pod_template: JsonObject = {}
    """A part of a pod template (metadata, spec) that is merged over the operator's template and overrides it.
    Containers are merged by name (ray-head)."""


class WorkerGroup(ApiModel):
    """Identical pods that train, generate, or do both."""

    model_config = cel(
        ("!has(self.maxReplicas) || has(self.minReplicas)", "maxReplicas needs minReplicas"),
        (
            "!has(self.maxReplicas) || !has(self.replicas) || self.maxReplicas >= self.replicas",
            "maxReplicas must not be less than replicas",
        ),
        ("!has(self.autoscale) || !self.autoscale || has(self.maxReplicas)", "autoscale needs maxReplicas"),
    )

    name: DnsLabel = "workers"
    """Name of the group."""
    pool: DnsLabel | None = None
    """The node pool of the runtime that gives accelerator, resources, nodeSelector and tolerations if the group does
    not. Default: the runtime's first pool with the group's accelerator, or its first pool."""
    replicas: Annotated[int, Field(ge=1, le=4096)] = 1
    """Number of pods. They are spread over nodes if possible."""
    min_replicas: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Number of pods with which the program starts and continues: of a group that only generates for rlt's trainer
    (rollout.workerGroup). A pod that becomes ready later serves from the next weight sync on. If a pod is lost and
    fewer run, the program saves a checkpoint, and the attempt ends as a disruption. Default: the program starts with
    all replicas, and continues with any number."""
    max_replicas: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Maximum of spec.rolloutReplicas, which changes the number of pods while the job runs. It needs minReplicas and an
    engine in each pod, and no gang, which starts a fixed number of pods. With a queue of Kueue, it needs Kueue 0.18 or
    newer. Limits of the runtime on replicas apply to it as well. Default: the number of pods does not change."""
    autoscale: bool = False
    """Set the number of pods to what metricRules.generationBound and trainingBound propose, within minReplicas and
    maxReplicas. Each rule needs its number of steps in succession with the same number of pods, which is the cooldown.
    status.rolloutReplicas has the number. spec.rolloutReplicas has precedence. It needs maxReplicas."""
    resources: Resources | None = None
    """Resources of each pod. Default: the pool's."""
    accelerator: Accelerator | None = None
    """Accelerators of each pod. Default: the pool's; without a pool, the pod trains on its CPU."""
    num_cpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Number of CPUs in each pod that Ray schedules: verl's ray_init.num_cpus. Default: whole CPUs of resources."""
    node_selector: NodeSelector = {}
    """Labels of the nodes that can run the pods."""
    tolerations: Tolerations = []
    """Tolerations of the pods."""
    pod_template: JsonObject = {}
    """As for the head. The container is ray-worker."""


class Cluster(ApiModel):
    """The Ray cluster that KubeRay creates for this job."""

    model_config = cel(
        (
            "!has(self.workers) || self.workers.all(one, self.workers.exists_one(other, "
            "(has(one.name) ? one.name : 'workers') == (has(other.name) ? other.name : 'workers')))",
            "worker groups must have unique names",
        )
    )

    image: Image | None = None
    """The image of all pods, with Ray and the trainer (or the program in framework.command). Default: the runtime's for
    the accelerator of the workers."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """The pull policy of the image."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=16)] = []
    """Names of Secrets in the job's namespace with credentials for the registry of the image."""
    ray_version: RayVersion | None = None
    """Version of Ray in the image. Default: the runtime's, or 2.60.0."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=86400)] = 300
    """Time for the program to save its state and exit when its job is suspended or its pods end, in seconds: for
    framework builtin the longest phase of a step and a checkpoint. A program that has ended does not use it."""
    env: Annotated[list[EnvVar], Field(max_length=128), KeyedBy("name")] = []
    """Environment variables of all pods."""
    head: Head = Head()
    """The head pod."""
    workers: Annotated[list[WorkerGroup], Field(min_length=1, max_length=8)] = [WorkerGroup()]
    """Worker groups. One group trains, and with rollout.mode separate a second one generates. A command may use
    more."""
