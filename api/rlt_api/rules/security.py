"""spec.security: the token of Ray and the driver."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import superfluous
from rlt_api.spec.job_spec import RLTrainingJobSpec

MIN_RAY_WITH_TOKEN = (2, 52, 0)
"""The first Ray with RAY_AUTH_MODE=token (ValidateRayClusterSpec in KubeRay 1.6.2's validation.go)."""


def validate_ray_token(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Only Ray 2.52 or later has token authentication. An older Ray would ignore the token."""
    if spec.security.ray_token and not supports_ray_token(spec):
        minimum = ".".join(map(str, MIN_RAY_WITH_TOKEN))
        message = f"needs Ray {minimum} or later, and spec.cluster.rayVersion is {spec.cluster.ray_version}"
        instead = "use an image with a later Ray"
        involved = ("spec.cluster.rayVersion",)
        field = "spec.security.rayToken"
        yield superfluous(field, True, message, instead=instead, rule="ray-token", involved=involved)


def supports_ray_token(spec: RLTrainingJobSpec) -> bool:
    """Return whether Ray has token authentication, by spec.cluster.rayVersion."""
    version = spec.cluster.ray_version
    return version is None or tuple(map(int, version.split("."))) >= MIN_RAY_WITH_TOKEN


def has_ray_token(spec: RLTrainingJobSpec) -> bool:
    """Return whether clients of Ray and of the driver need a token."""
    return supports_ray_token(spec) if spec.security.ray_token is None else spec.security.ray_token


RULES = (validate_ray_token,)
