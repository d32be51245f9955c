"""The export of a checkpoint to the Hugging Face format, and the publication of an exported model, in a Job (batch/v1)
with the permissions of the user."""

from __future__ import annotations

from rlt.connection import Connection, prepare_output
from rlt.errors import UnavailableError
from rlt.job_state import is_true
from rlt.kube_context import KubeContext
from rlt_api.frameworks.export import build_checkpoint_export
from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.export_job import build_export_job, build_publish_job
from rlt_core.children.program import build_run
from rlt_core.job import Manifest, parse_job
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError


async def export_checkpoint(
    connection: Connection, name: str, step: int | None = None, *, dry_run: bool = False
) -> Manifest:
    """Create the Job that exports the checkpoint of `step`, by default the latest one. Returns the Job.

    `dry_run` creates no object. Raises NotFoundError, and UnavailableError if the checkpoint cannot be exported.
    """
    manifest = await _get_job(connection, name)
    export_job = build_export_manifest(manifest, step, connection.kube_context)
    if not dry_run and is_true(manifest, "Running"):
        connection.notify(f"note: job {name} runs: it may delete the checkpoint during the export (spec.checkpoint).")
    return await _create(connection, export_job, "the checkpoint is being exported", dry_run=dry_run)


async def publish_export(connection: Connection, name: str, *, dry_run: bool = False) -> Manifest:
    """Create the Job that publishes the exported model of a job again, where that has failed. Returns the Job.

    `dry_run` creates no object. Raises NotFoundError if the job does not exist, and UnavailableError if it has not
    exported a model.
    """
    publish_job = build_publish_manifest(await _get_job(connection, name), connection.kube_context)
    return await _create(connection, publish_job, "the model is being published", dry_run=dry_run)


async def _get_job(connection: Connection, name: str) -> Manifest:
    manifest: Manifest | None = await connection.api.get(api_paths.job(connection.namespace, name))
    return await connection.get_job(name) if manifest is None else manifest  # raises NotFoundError


async def _create(connection: Connection, manifest: Manifest, doing: str, *, dry_run: bool) -> Manifest:
    if dry_run:
        return prepare_output(manifest)
    try:
        return prepare_output(await connection.api.create(api_paths.batch_jobs(connection.namespace), manifest))
    except ApiError as error:
        if error.status != 409:
            raise
        existing = manifest["metadata"]["name"]
        message = f"Job {existing} exists: {doing}, or was within the last day."
        delete = f"kubectl delete job {existing} -n {connection.namespace}"
        raise UnavailableError(message, next=delete) from error


def build_publish_manifest(manifest: Manifest, kube_context: KubeContext) -> Manifest:
    """Build the Job that publishes. Raises UnavailableError."""
    job = parse_job(manifest)
    status = kube_context.command_line(f"status {job.name}")
    if job.spec is None:
        raise UnavailableError(f"The spec of job {job.name} is invalid.", next=status)
    if not job.spec.publish:
        raise UnavailableError(f"Job {job.name} has no place for its model: spec.publish is empty.", next=status)
    exported = job.status.checkpoint.exported_path if job.status.checkpoint else None
    if exported is None:
        message = f"Job {job.name} has exported no model: status.checkpoint.exportedPath is absent."
        raise UnavailableError(message, next=status)
    if not job.spec.storage.outlives_pods:
        message = f"The model of job {job.name} is in {exported}, and only one on a volume can be published again: "
        raise UnavailableError(f"{message}upload it, such as with `hf upload`.", next=status)
    return build_publish_job(job, job.spec, build_run(job, job.spec).directory)


def build_export_manifest(manifest: Manifest, step: int | None, kube_context: KubeContext) -> Manifest:
    """Build the Job for an RLTrainingJob. Raises UnavailableError if the checkpoint cannot be exported."""
    job = parse_job(manifest)
    name = job.name
    spec = job.spec
    status = kube_context.command_line(f"status {job.name}")
    if spec is None:
        raise UnavailableError(f"The spec of job {name} is invalid.", next=status)
    if spec.storage.bucket:
        url = names.run_url(name, uid=job.uid, spec=spec)
        message = f"The checkpoints of job {name} are in {url}/checkpoints, and only those on a volume can be exported."
        exported = job.status.checkpoint.exported_path if job.status.checkpoint else None
        model = f"is in {exported}" if exported else "will be in status.checkpoint.exportedPath"
        raise UnavailableError(f"{message} The model at the end of the job {model}.", next=status)
    if not spec.storage.outlives_pods:
        message = f"The checkpoints of job {name} end with its pods: spec.storage has neither claimName nor "
        raise UnavailableError(f"{message}storageClassName. Set one of them in a new job.", next=status)
    latest = job.status.checkpoint.latest_step if job.status.checkpoint else None
    if latest is None:
        frequency = f"spec.checkpoint.saveFreq is {spec.checkpoint.save_freq}"
        message = f"Job {name} has no complete checkpoint: status.checkpoint.latestStep is absent, and {frequency}."
        raise UnavailableError(message, next=status)
    step = latest if step is None else step
    if not 1 <= step <= latest:
        message = f"--step {step}: job {name} has checkpoints up to step {latest} (status.checkpoint.latestStep)."
        raise UnavailableError(message, next=kube_context.command_line(f"export {name} --step {latest}"))
    if _is_deleted(spec, step, latest):
        kept = f"spec.checkpoint.maxToKeep is {spec.checkpoint.max_to_keep}"
        message = f"--step {step}: {kept}, and job {name} has saved step {latest}: step {step} has been deleted."
        raise UnavailableError(message, next=kube_context.command_line(f"export {name} --step {latest}"))
    export = build_checkpoint_export(spec, build_run(job, spec), step)
    if export is None:
        message = f"spec.framework.type {spec.framework.type}: the checkpoint format of job {name} is unknown."
        raise UnavailableError(f"{message} Run the export of its program in a pod.", next=status)
    if not export.command:
        message = f"spec.framework.type {spec.framework.type} writes models in Hugging Face format itself, and has no "
        message += f"program that exports checkpoints: use {export.directory} in the volume of job {name}."
        raise UnavailableError(message, next=status)
    return build_export_job(job, spec, export, step)


def _is_deleted(spec: RLTrainingJobSpec, step: int, latest: int) -> bool:
    """Whether the builtin trainer has deleted the checkpoint of `step` because of `maxToKeep`.

    False where the spec does not determine it: with keepBest an old checkpoint may be the best, and the first
    checkpoints of other programs stay after a restart.
    """
    checkpoint = spec.checkpoint
    if not get_framework(spec).keeps_exactly or checkpoint.keep_best or checkpoint.save_freq < 1 or step == latest:
        return False
    # The multiples of saveFreq after `step`, and `latest` if it is not one of them.
    later = -(-latest // checkpoint.save_freq) - step // checkpoint.save_freq
    return 0 < checkpoint.max_to_keep <= later


def get_export_path(export_job: Manifest) -> str:
    """The folder of the model in the volume."""
    return str(export_job["metadata"]["annotations"][names.EXPORT_ANNOTATION])
