"""The token of Ray and the driver: a Secret for each attempt, mounted as a file into all pods.

A file and not a variable, because programs print their environment. Ray reads it from RAY_AUTH_TOKEN_PATH and accepts
it in the header TOKEN_HEADER (ray/_private/authentication, Ray 2.60). KubeRay's `authOptions` does the same from
KubeRay 1.5 on, with one Secret for the lifetime of a RayCluster and the token in a variable.
"""

from __future__ import annotations

import base64

from rlt_api.rules.security import has_ray_token
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest, get_attempt_number
from rlt_pod.sandbox.protocol import derive_key

DIRECTORY = "/etc/rlt-ray-token"
KEY = "auth_token"
"""Key of the Secret and name of the file. KubeRay uses the same key."""
SANDBOX_KEY = "sandbox_key"
"""Key of the Secret with the key of the sandbox pods, which get nothing else of it."""
TYPE = "rlt.dev/ray-token"
"""Type of the Secret. The operator reads no other type for a job."""
VOLUME = "ray-token"
"""Name of the volume in the pods."""


def build_ray_token(job: Job) -> Manifest:
    """Build the Secret of the job's present attempt without its data, which only the operator adds."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": build_metadata(job, get_secret_name(job)),
        "type": TYPE,
        "immutable": True,
    }


def add_ray_token(secret: Manifest, token: str) -> Manifest:
    """Return the Secret with the token, and with the key of the sandbox pods, which is derived from it."""
    values = {KEY: token, SANDBOX_KEY: derive_key(token)}
    return {**secret, "data": {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}}


def build_ray_token_env(spec: RLTrainingJobSpec) -> dict[str, str]:
    """Build the variables that Ray and the driver read. Without a token, Ray must not select one of the image."""
    if not has_ray_token(spec):
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": f"{DIRECTORY}/{KEY}"}


def build_ray_token_volumes(job: Job, spec: RLTrainingJobSpec) -> list[Manifest]:
    """Build the volume with the token."""
    if not has_ray_token(spec):
        return []
    return [{"name": VOLUME, "secret": {"secretName": get_secret_name(job), "items": [{"key": KEY, "path": KEY}]}}]


def build_ray_token_mounts(spec: RLTrainingJobSpec) -> list[Manifest]:
    """Build the mount of the volume."""
    return [{"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}] if has_ray_token(spec) else []


def find_ray_token_name(pod: Manifest) -> str | None:
    """Name of the Secret that a pod has mounted as its token; None if it has none."""
    volumes = pod.get("spec", {}).get("volumes") or []
    return next((each["secret"]["secretName"] for each in volumes if each["name"] == VOLUME and "secret" in each), None)


def parse_ray_token(secret: Manifest, *, owner_uid: str) -> str | None:
    """The token in a Secret; None if the Secret is not a token of the job with this uid."""
    owners = secret["metadata"].get("ownerReferences") or []
    data = secret.get("data") or {}
    if secret.get("type") != TYPE or KEY not in data or owner_uid not in [owner["uid"] for owner in owners]:
        return None
    try:
        return base64.b64decode(data[KEY]).decode("ascii")
    except ValueError:  # not a token that the operator created
        return None


def get_secret_name(job: Job) -> str:
    """Name of the Secret for the present attempt.

    A failed attempt has ended before the next one is built. A resumed job continues its attempt, with its token.
    """
    return names.ray_token(job.name, attempt=get_attempt_number(job.status), suffix=job.token_suffix)
