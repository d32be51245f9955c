"""Writes of a job's children. An object that exists and does not belong to the job is never changed.

A child is created with POST, which fails if the object exists. An existing child is applied with its uid as a
precondition: an object that a user creates between the read and the write is not changed either.
"""

from __future__ import annotations

from rlt_api.schema.crd import KIND
from rlt_core import names
from rlt_core.children.programs import has_named_content, is_programs
from rlt_core.children.ray_token import add_ray_token
from rlt_core.job import Job, Manifest, get_attempt_number
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi, UnknownResourceError
from rlt_core.token_key import TokenKey
from rlt_operator.manifests import parse_config

FIXES = {
    "PersistentVolumeClaim": (
        "Set spec.storage.claimName to {name} instead of storageClassName to use it, delete it, or create the job with "
        "another name."
    ),
}
"""Kind -> what to do if the name is taken."""
UNCHANGED = ("RayCluster", "Job", "Sandbox", "Service")
"""Kinds that are not changed once they exist. A change of the RayCluster would end the training. The pool of sandbox
pods and their Service depend on no field that can change."""
ALREADY_EXISTS = 409
"""HTTP status if an object with the name exists."""
FIX = "Delete it, or create the job with another name."


class NameTakenError(Exception):
    """An object with the name of a child exists and does not belong to the job. The text names it and the fix."""


async def write_child(api: KubernetesApi, job: Job, manifest: Manifest, *, restores: bool = False) -> Manifest:
    """Create the child, or apply it if it exists and belongs to the job. Returns the object as stored.

    Raises NameTakenError, ApiError.

    An existing child of the kinds UNCHANGED is not changed. `restores`: the RayCluster exists.
    Then a ConfigMap stays that is as an operator wrote it, possibly of another version, and that the cache lacks yet.
    """
    try:
        return await api.create(api_paths.collection_of(manifest), manifest)
    except UnknownResourceError:
        raise
    except ApiError:  # it exists, or a quota or webhook rejects every creation
        path = api_paths.path_of(manifest)
        existing = await api.get(path)
        if existing is None:
            raise
        if is_programs(manifest):
            if has_named_content(existing):
                return existing
            raise NameTakenError(f"ConfigMap {manifest['metadata']['name']} has other programs. Delete it.") from None
        check_owner(job, manifest, existing)
        if manifest["kind"] in UNCHANGED or (restores and _is_unchanged_config(existing)):
            return existing
        metadata = {**manifest["metadata"], "uid": existing["metadata"]["uid"]}
        return await api.apply(path, {**manifest, "metadata": metadata})


async def write_ray_token(api: KubernetesApi, job: Job, manifest: Manifest, key: TokenKey) -> None:
    """Create the Secret with the token of the job's present attempt, unless it exists. Raises ApiError.

    The token is added here, so that no plan contains it. The operator cannot read Secrets. One with this name is the
    operator's, because the name cannot be known before.
    """
    token = key.derive_token(job.uid, get_attempt_number(job.status))
    try:
        await api.create(api_paths.collection_of(manifest), add_ray_token(manifest, token))
    except ApiError as error:
        if error.status != ALREADY_EXISTS:
            raise


async def check_head_service(api: KubernetesApi, job: Job) -> None:
    """Raise NameTakenError if KubeRay would use a Service that it did not create for the head. Raises ApiError."""
    name = names.head_service(job.name)
    service = await api.get(api_paths.service(job.namespace, name))
    if service is None:
        return
    owner = _get_controller(service)
    if (owner.get("kind"), owner.get("name")) != ("RayCluster", names.ray_cluster(job.name)):
        raise NameTakenError(_describe_taken("Service", name, service))


def check_owner(job: Job, manifest: Manifest, existing: Manifest) -> None:
    """Raise NameTakenError unless the existing object belongs to the job.

    Raises ApiError with status 409 if it is terminating, or belongs to a deleted job of this name: then it disappears.
    An object that no job owns (the PVC) belongs to every job of its label. The head pod owns the pool of sandbox pods.
    """
    kind = manifest["kind"]
    name = manifest["metadata"]["name"]
    metadata = existing["metadata"]
    owner = _get_controller(existing)
    if "ownerReferences" in manifest["metadata"]:
        previous = owner.get("kind") == KIND and owner.get("name") == job.name
        belongs = owner.get("uid") == _get_controller(manifest)["uid"]
    else:
        previous = False
        labels = metadata.get("labels", {})
        belongs = not owner and all(labels.get(key) == value for key, value in manifest["metadata"]["labels"].items())
    if (belongs or previous) and ("deletionTimestamp" in metadata or not belongs):
        raise ApiError(409, f"waiting for {kind} {name} of an earlier run to be deleted")
    if not belongs:
        raise NameTakenError(_describe_taken(kind, name, existing))


def _is_unchanged_config(manifest: Manifest) -> bool:
    return manifest["kind"] == "ConfigMap" and parse_config(manifest).is_unchanged


def _describe_taken(kind: str, name: str, existing: Manifest) -> str:
    owner = _get_controller(existing)
    details = [f"it belongs to {owner['kind']} {owner['name']}"] if owner else []
    if existing.get("spec", {}).get("type") == "ExternalName":
        details.append("it is of type ExternalName")
    note = f" ({', '.join(details)})" if details else ""
    fix = FIXES.get(kind, FIX).format(name=name)
    return f"{kind} {name} exists and does not belong to this job{note}. {fix}"


def _get_controller(manifest: Manifest) -> dict[str, str]:
    references = manifest["metadata"].get("ownerReferences", [])
    return next((reference for reference in references if reference.get("controller")), {})
