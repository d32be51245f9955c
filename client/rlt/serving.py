"""A vLLM server for the model that a job has exported, as manifests."""

from __future__ import annotations

from rlt.connection import Connection, prepare_output
from rlt.errors import UnavailableError
from rlt.job_state import get_condition
from rlt.kube_context import KubeContext
from rlt_api.frameworks.builtin.training_config import count_devices
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import rollout_group, training_group
from rlt_core.children.model_server import IMAGE_MOUNT, ServedModel, build_model_server
from rlt_core.earlier_job import find_claim
from rlt_core.job import Job, Manifest, parse_job

ADAPTER = "adapter"
"""Folder of the adapter in an export."""


async def render_model_server(
    connection: Connection, name: str, *, adapter: bool = False, image: str | None = None, unpromoted: bool = False
) -> list[Manifest]:
    """Build a Deployment and a Service for the exported model of a job. Nothing is created.

    `adapter`: serve the base model with the LoRA adapter of the job, which clients choose by the name of the job.
    `image`: an image with vLLM, by default the job's. `unpromoted`: also if a suite does not pass its promoteIf.
    Raises NotFoundError if the job does not exist, and UnavailableError if it has no model that a server can load.
    """
    manifest = await connection.get_job(name)
    servers = build_server_manifests(
        manifest, connection.kube_context, adapter=adapter, image=image, unpromoted=unpromoted
    )
    return [prepare_output(each) for each in servers]


def build_server_manifests(
    manifest: Manifest, kube_context: KubeContext, *, adapter: bool, image: str | None, unpromoted: bool
) -> list[Manifest]:
    """Build the manifests. Raises UnavailableError."""
    job = parse_job(manifest)
    status = kube_context.command_line(f"status {job.name}")
    if job.spec is None:
        raise UnavailableError(f"The spec of job {job.name} is invalid.", next=status)
    promoted = get_condition(manifest, "Promoted")
    if promoted and promoted["status"] != "True" and not unpromoted:
        again = kube_context.command_line(f"serve {job.name} --render --unpromoted")
        raise UnavailableError(f"Job {job.name} is not promoted: {promoted['message']}", next=again)
    _check_devices(job, job.spec, status)
    model = _find_adapter(job, job.spec, status) if adapter else _find_model(job, job.spec, status)
    return build_model_server(job, job.spec, model, image)


def _check_devices(job: Job, spec: RLTrainingJobSpec, next_command: str) -> None:
    size = spec.rollout.tensor_parallel_size
    devices = count_devices(rollout_group(spec) or training_group(spec))
    if size > max(1, devices):
        message = (
            f"spec.rollout.tensorParallelSize {size}: an engine of job {job.name} spans pods of {devices} devices, "
        )
        raise UnavailableError(f"{message}and a Deployment has one pod for each engine.", next=next_command)


def _find_model(job: Job, spec: RLTrainingJobSpec, next_command: str) -> ServedModel:
    """The export on the volume, or else the first publication on the hub or in a registry."""
    if (folder := _find_export(job, spec)) is not None:
        return ServedModel(folder)
    for place, result in zip(spec.publish, job.status.published, strict=False):
        if place.hub and result.revision:
            return ServedModel(place.hub, result.revision, place.secret_name)
        if place.registry and result.revision:
            image = f"{place.registry.removeprefix('oci://')}@{result.revision}"
            return ServedModel(IMAGE_MOUNT, secret=place.secret_name, image=image)
    raise _explain_missing(job, next_command)


def _find_adapter(job: Job, spec: RLTrainingJobSpec, next_command: str) -> ServedModel:
    folder = _find_export(job, spec)
    model = spec.model
    if model is None or model.lora is None:
        message = f"Job {job.name} has trained no adapter: spec.model.lora is not given."
        raise UnavailableError(message, next=next_command)
    if model.path is None:
        message = f"The base model of job {job.name} has no files: spec.model.fromSeed. Its export has merged weights."
        raise UnavailableError(message, next=next_command)
    if folder is None:
        raise _explain_missing(job, next_command)
    return ServedModel(model.path, model.revision, adapter=f"{folder}/{ADAPTER}")


def _find_export(job: Job, spec: RLTrainingJobSpec) -> str | None:
    """The folder of the exported model on a volume that outlives the job."""
    checkpoint = job.status.checkpoint
    exported = checkpoint.exported_path if checkpoint else None
    return exported if exported and exported.startswith("/") and find_claim(job.name, spec) else None


def _explain_missing(job: Job, next_command: str) -> UnavailableError:
    exported = job.status.checkpoint.exported_path if job.status.checkpoint else None
    if exported is None:
        message = f"Job {job.name} has exported no model: status.checkpoint.exportedPath is absent."
        return UnavailableError(message, next=next_command)
    message = f"The model of job {job.name} is in {exported}, which no server can mount: copy it to a volume, or train "
    return UnavailableError(
        f"{message}with storage.claimName, or with hub or registry in spec.publish.", next=next_command
    )
