"""status.preflight and status.preflightPassed: the results of the preflight checks, and the nodes and images of
the last cluster that passed, which are not checked again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.job_status import PassedPreflight, PreflightCheck
from rlt_core.children.preflight_file import get_level
from rlt_operator.observation import Observed, Pod
from rlt_operator.verdict import Verdict
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

MAX_NODES = 256
MAX_IMAGES = 16
"""Maximum numbers in the status. A larger cluster is checked again."""

_CHECKS = TypeAdapter(list[PreflightCheck])


def keep_preflight_results(observed: Observed, verdict: Verdict, now: datetime) -> list[PreflightCheck]:
    """The results on the nodes of the current RayCluster. An ended job keeps its last RayCluster's results."""
    preflight = observed.preflight
    if preflight is None:
        kept = keeps_preflight_results(observed) or observed.job.status.preflight_passed is not None
        return observed.job.status.preflight if kept else []
    return parse_preflight(preflight.log or "", observed.cluster_pods)


def parse_preflight(log: str, pods: Sequence[Pod]) -> list[PreflightCheck]:
    """The results in the program's output; empty if it has none. Fields of a newer trainer are ignored."""
    lines = [line.removeprefix(PREFLIGHT_PREFIX) for line in log.splitlines() if line.startswith(PREFLIGHT_PREFIX)]
    if not lines:
        return []
    try:
        results = _CHECKS.validate_json(lines[-1], extra="ignore")
    except ValidationError:
        return []
    nodes = {pod.name: pod.node for pod in pods if pod.node}
    names = [check.get("pods", []) for check in json.loads(lines[-1])]  # a PreflightCheck has the first ones
    return [_add_nodes(check, each, nodes) for check, each in zip(results, names, strict=True)]


def keeps_preflight_results(observed: Observed) -> bool:
    """Whether the results in the status belong to the current RayCluster, or to a job that has ended."""
    return observed.job.has_ended or observed.is_submitted or observed.is_preflight_submitted


def has_passed_before(observed: Observed, spec: RLTrainingJobSpec) -> bool:
    """Whether the pods of the current RayCluster have the nodes and images that passed these checks."""
    passed = observed.job.status.preflight_passed
    return passed is not None and passed == _describe_cluster(observed, spec)


def remember_passed_preflight(observed: Observed, verdict: Verdict, now: datetime) -> PassedPreflight | None:
    """The record after this observation: renewed by checks that passed, removed by checks that failed."""
    spec = observed.job.spec
    ray = observed.ray
    old = observed.job.status.preflight_passed
    job = ray.preflight.job if ray and ray.preflight else None
    if spec is None or job is None or job.status in ("PENDING", "RUNNING"):
        return old
    return _describe_cluster(observed, spec) if job.status == "SUCCEEDED" else None


def _add_nodes(check: PreflightCheck, pods: Sequence[str], nodes: Mapping[str, str]) -> PreflightCheck:
    names = sorted({nodes[pod] for pod in pods if pod in nodes})
    return PreflightCheck.model_validate({**check.model_dump(), "nodes": names})


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
