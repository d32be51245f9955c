"""The readiness probe of the pods, without the delay of KubeRay's."""

from __future__ import annotations

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.job import Manifest

FIRST_VERSION = (2, 53)
"""Of Ray with HEALTH_PATH. KubeRay gives pods with an earlier one its own probe, which needs bash and wget."""
HEALTH_PATH = "/api/healthz"
"""Of Ray's dashboard agent, for KubeRay's probes too (controllers/ray/utils/constant.go, KubeRay 1.6.2)."""
AGENT_PARAMETER = "dashboard-agent-listen-port"
AGENT_PORT = 52365
"""Ray's default for AGENT_PARAMETER."""


def build_readiness_probe(spec: RLTrainingJobSpec, port: int = AGENT_PORT) -> Manifest:
    """Build the field of the container, for Ray's dashboard agent at `port`; empty for an earlier version of Ray.

    A node of Ray needs about 5 s to start. KubeRay's probe asks after 10 s, and then each 5 s, so that a pod is ready
    after 15 s. As KubeRay's, a pod is not ready any more after 50 s without an answer.
    """
    version = spec.cluster.ray_version
    if version is None or tuple(int(part) for part in version.split(".")[:2]) < FIRST_VERSION:
        return {}
    return {
        "readinessProbe": {
            "httpGet": {"path": HEALTH_PATH, "port": port},
            "initialDelaySeconds": 2,
            "periodSeconds": 2,
            "timeoutSeconds": 2,
            "failureThreshold": 25,
        }
    }
