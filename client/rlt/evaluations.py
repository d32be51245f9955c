"""A job that evaluates checkpoints of another job on its suites (spec.evaluateOnly)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlt.connection import Connection, prepare_output
from rlt.errors import InvalidJobError, UnavailableError
from rlt.kube_context import KubeContext
from rlt_api.blocks.evaluation import Evaluation
from rlt_api.schema.crd import GROUP, KIND, VERSION
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_api.validation.validate import validate_job
from rlt_core.earlier_job import find_claim
from rlt_core.job import Job, Manifest, parse_job
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError

UNUSED = (
    "algorithm",
    "checkpoint",
    "managedBy",
    "observability",
    "preflight",
    "publish",
    "rolloutReplicas",
    "suspend",
    "training",
)
"""Fields of a training that an evaluation does not take over. It has the seed of the training."""
BOUNDS = ("minReplicas", "maxReplicas")
"""Fields of a worker group whose pods come and go. An evaluation has a fixed number."""
ROLLOUT_MODE = ("mode", "workerGroup", "staleness")
"""Fields of spec.rollout about engines beside train workers."""


async def submit_evaluation(
    connection: Connection,
    name: str,
    steps: Sequence[str] = ("latest",),
    suites: Sequence[str] = (),
    *,
    new_name: str | None = None,
    dry_run: bool = False,
) -> Manifest:
    """Create the job that evaluates the checkpoints of `steps`, numbers or latest, on `suites`, by default all.

    `new_name`: of the job. Default: NAME-eval. `dry_run` creates nothing. Raises NotFoundError, UnavailableError if
    the checkpoints or suites do not exist, and InvalidJobError for a job that cannot be evaluated without training.
    """
    source = await connection.get_job(name)
    manifest = build_evaluation_job(source, steps, suites, new_name or f"{name}-eval", connection.kube_context)
    if dry_run:
        return prepare_output(manifest)
    try:
        return prepare_output(await connection.api.create(api_paths.jobs(connection.namespace), manifest))
    except ApiError as error:
        if error.status != 409:
            raise
        existing = manifest["metadata"]["name"]
        next_command = connection.kube_context.command_line(f"eval {name} --name {existing}-2")
        raise UnavailableError(f"RLTrainingJob {existing} exists: use another name.", next=next_command) from error


def build_evaluation_job(
    source: Manifest, steps: Sequence[str], suites: Sequence[str], name: str, kube_context: KubeContext
) -> Manifest:
    """Build the job. Raises UnavailableError and InvalidJobError."""
    job = parse_job(source)
    status = kube_context.command_line(f"status {job.name}")
    if job.spec is None:
        raise UnavailableError(f"The spec of job {job.name} is invalid.", next=status)
    spec = _build_spec(job, job.spec, steps, suites, status)
    findings = validate_job(name, spec, policy=RuntimePolicy(unknown=True)).findings
    if findings:
        lines = "\n".join(map(str, findings))
        raise InvalidJobError(f"{name} is invalid:\n{lines}", next=status, findings=findings)
    metadata = {"name": name, "namespace": job.namespace}
    if labels := source["metadata"].get("labels"):
        metadata["labels"] = labels
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": spec}


def _build_spec(
    job: Job, spec: RLTrainingJobSpec, steps: Sequence[str], suites: Sequence[str], next_command: str
) -> dict[str, Any]:
    chosen = _select_suites(job.name, spec, suites, next_command)
    built = {field: value for field, value in job.submitted_spec.items() if field not in UNUSED}
    built["training"] = {"seed": spec.training.seed}
    built["evaluation"] = [_build_suite(suite, has_base="0" in steps) for suite in chosen]
    built["evaluateOnly"] = {"checkpoints": _find_checkpoints(job, spec, next_command), "steps": list(steps)}
    built["storage"] = {
        **{name: value for name, value in built.get("storage", {}).items() if name not in ("storageClassName", "size")},
        "claimName": find_claim(job.name, spec),
    }
    if framework := {name: value for name, value in built.pop("framework", {}).items() if name != "prepare"}:
        built["framework"] = framework
    rollout = built.get("rollout", {})
    if spec.rollout.mode == "separate":
        groups = job.submitted_spec.get("cluster", {}).get("workers", [])
        generating = [group for group in groups if group.get("name") == spec.rollout.worker_group]
        engines = [{name: value for name, value in group.items() if name not in BOUNDS} for group in generating]
        built["cluster"] = {**built.get("cluster", {}), "workers": engines}
    built["rollout"] = {name: value for name, value in rollout.items() if name not in ROLLOUT_MODE}
    return built


def _select_suites(job: str, spec: RLTrainingJobSpec, names: Sequence[str], next_command: str) -> list[Evaluation]:
    present = {suite.name: suite for suite in spec.evaluation}
    if not present:
        raise UnavailableError(f"Job {job} has no suites: spec.evaluation is empty.", next=next_command)
    if unknown := [name for name in names if name not in present]:
        raise UnavailableError(f"--suite {unknown[0]}: job {job} has {', '.join(present)}.", next=next_command)
    return [present[name] for name in names or present]


def _build_suite(suite: Evaluation, *, has_base: bool) -> dict[str, Any]:
    """The suite as JSON. A gate whose base is not evaluated is left out."""
    gate = suite.promote_if
    unused = {"every", "before_train"}
    if gate is not None and gate.gain_above is not None and not has_base:
        unused.add("promote_if")
    return suite.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=unused)


def _find_checkpoints(job: Job, spec: RLTrainingJobSpec, next_command: str) -> str:
    if spec.framework.type != "builtin":
        message = f"spec.framework.type {spec.framework.type}: only checkpoints of rlt's trainer can be evaluated."
        raise UnavailableError(message, next=next_command)
    if find_claim(job.name, spec) is None:
        message = f"The checkpoints of job {job.name} are not on a volume that outlives it: spec.storage has neither "
        raise UnavailableError(f"{message}claimName nor storageClassName.", next=next_command)
    saved = job.status.checkpoint
    if saved is None or saved.latest_step is None or saved.path is None:
        frequency = f"spec.checkpoint.saveFreq is {spec.checkpoint.save_freq}"
        message = f"Job {job.name} has no complete checkpoint: status.checkpoint.latestStep is absent, and {frequency}."
        raise UnavailableError(message, next=next_command)
    return saved.path
