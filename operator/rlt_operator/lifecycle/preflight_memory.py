"""status.preflightPassed: the nodes and images of the last Ray cluster that passed, which are not checked again."""

from __future__ import annotations

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.job_status import PassedPreflight
from rlt_core.children.preflight_file import get_level
from rlt_operator.observation import Observed

MAX_NODES = 256
MAX_IMAGES = 16
"""Maximum numbers in the status. A larger cluster is checked again."""


def is_remembered(observed: Observed, spec: RLTrainingJobSpec) -> bool:
    """Whether the pods of the current RayCluster have the nodes and images that passed these checks."""
    passed = observed.job.status.preflight_passed
    return passed is not None and passed == _describe_cluster(observed, spec)


def remember(observed: Observed) -> PassedPreflight | None:
    """The record after this observation: renewed by checks that passed, removed by checks that failed."""
    spec = observed.job.spec
    ray = observed.ray
    old = observed.job.status.preflight_passed
    job = ray.preflight.job if ray and ray.preflight else None
    if spec is None or job is None or job.status in ("PENDING", "RUNNING"):
        return old
    return _describe_cluster(observed, spec) if job.status == "SUCCEEDED" else None


def _describe_cluster(observed: Observed, spec: RLTrainingJobSpec) -> PassedPreflight | None:
    """The level, and the nodes and images of the pods. None while a pod, its node or its image is not known."""
    pods = observed.cluster_pods
    if len(pods) != 1 + sum(group.replicas for group in spec.cluster.workers):
        return None
    if any(pod.node is None or not pod.images for pod in pods):
        return None
    nodes = sorted({pod.node for pod in pods if pod.node})
    images = sorted({image for pod in pods for image in pod.images})
    if len(nodes) > MAX_NODES or len(images) > MAX_IMAGES:
        return None
    return PassedPreflight(level=get_level(spec), nodes=nodes, images=images)
