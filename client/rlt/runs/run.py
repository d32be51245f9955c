"""A run as reports and comparisons read it: from its directory, or from a job of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlt.bucket_results import describe_bucket
from rlt.connection import Connection, convert_api_errors, prepare_output
from rlt.errors import ClusterError, RltError, UnavailableError
from rlt.job_state import get_phase, summarize
from rlt.kept_files import has_kept_files
from rlt.metric_text import Step
from rlt.runs.directory import NUM_EXTREMES, RunRecords, read_run_directory, shorten
from rlt.runs.kept_record import get_kept_record, to_run_records
from rlt.runs.records import get_history, get_rollouts, read_volume
from rlt.runs.rollouts import Rollout
from rlt.runs.suite_results import read_gates
from rlt_api.findings.masking import mask_json, mask_text
from rlt_api.spec.plain_secrets import find_secrets
from rlt_api.spec.suite_scores import SuiteScores
from rlt_api.status.conditions import ConditionType
from rlt_api.validation.resolved_spec import get_resolved_spec
from rlt_core.job import Manifest
from rlt_core.knowledge.entries import load_entries
from rlt_core.kubernetes import api_paths
from rlt_pod.report.extremes import select_extremes
from rlt_pod.report.metric_rules import DEFAULTS, MetricHistory, list_broken, record

DIRECTORY_KEYS = ("version", "job", "namespace", "runDirectory")
"""Fields of a directory's config that name the run and configure nothing."""


@dataclass(frozen=True)
class Run:
    """A run. Secrets are masked."""

    name: str
    source: str
    """Where the records are from: a path, or the job with its namespace."""
    phase: str
    sentence: str
    """The reason for the phase."""
    config: Mapping[str, Any]
    """The resolved configuration by block, such as training."""
    steps: Sequence[Step]
    rollouts: Sequence[Rollout] = ()
    """The best and the worst of `rollouts_step`, the best first."""
    rollouts_step: int | None = None
    findings: Sequence[Mapping[str, Any]] = ()
    """As status.findings."""
    attempts: Sequence[Mapping[str, Any]] = ()
    """As status.attempts."""
    gates: Sequence[Mapping[str, Any]] = ()
    """The results of the suites with promoteIf, from a run directory: suite, passed (None: unknown) and evidence."""
    scores: Mapping[str, SuiteScores] = field(default_factory=dict)
    """Suite -> the scores of its newest evaluation, from a run directory or a volume."""
    notes: tuple[str, ...] = ()
    """What is missing, and why."""
    details: Mapping[str, str] = field(default_factory=dict)
    """More facts, such as images, by name."""


def read_run(path: Path) -> Run:
    """The run of a directory. Raises UnavailableError if it has no records."""
    records = read_run_directory(path)
    notes: list[str] = []
    gates = read_gates(path, notes)
    training = records.config.get("training")
    name = records.config.get("job")
    total = training.get("totalSteps") if isinstance(training, Mapping) else None
    done = records.steps[-1]["step"] if records.steps else 0
    complete = isinstance(total, int) and done == total
    sentence = f"{done} of {total} steps are recorded." if total else f"{done} steps are recorded."
    numbers = sorted(int(each.name) for each in (path / "attempts").glob("*") if each.name.isdigit())
    details = {"attempts": str(numbers[-1])} if numbers else {}
    return _mask(
        replace(records, notes=(*records.notes, *notes)),
        Run(
            name=name if isinstance(name, str) and name.isprintable() else path.absolute().name,
            source=str(path),
            phase="Complete" if complete else "Incomplete",
            sentence=sentence,
            config={key: value for key, value in records.config.items() if key not in DIRECTORY_KEYS},
            steps=records.steps,
            findings=find_broken_rules(records.steps),
            gates=gates,
            details=details,
        ),
        (),
    )


async def load_run(connection: Connection, name: str, *, reads_volume: bool = True) -> Run:
    """The run of a job: from its program while it runs, then from its volume or its kept record. Raises NotFoundError.

    Reading the volume creates a pod. Without `reads_volume` and a record, a note has the command that reads it.
    """
    job, secrets = await get_job_and_secrets(connection, name)
    return build_run(job, await _load_records(connection, job, reads_volume), secrets)


async def get_job_and_secrets(connection: Connection, name: str) -> tuple[Manifest, list[str]]:
    """A job with its plain-text secrets masked, and these secrets. Raises NotFoundError."""
    manifest = await connection.api.get(api_paths.job(connection.namespace, name))
    if manifest is None:
        return await connection.get_job(name), []  # raises NotFoundError
    specs = (manifest["spec"], get_resolved_spec(manifest))
    return prepare_output(manifest), [each.value for spec in specs for each in find_secrets(spec, "spec")]


def build_run(job: Manifest, records: RunRecords, secrets: Sequence[str] = ()) -> Run:
    """The run of a job with its records. `secrets`: texts to mask in the records."""
    config = get_resolved_spec(job) or job["spec"]
    status = job.get("status", {})
    cluster = config.get("cluster", {})
    details = {
        "namespace": job["metadata"].get("namespace"),
        "created": job["metadata"].get("creationTimestamp"),
        "started": status.get("startTime"),
        "completed": status.get("completionTime"),
        "model": status.get("model"),
        "algorithm": status.get("algorithm"),
        "accelerators": status.get("gpus"),
        "restarts": status.get("restarts"),
        "disruptions": status.get("disruptions"),
        "image": cluster.get("image"),
        "Ray": cluster.get("rayVersion"),
        "checkpoint": status.get("checkpoint", {}).get("latestStep"),
        "exported model": status.get("checkpoint", {}).get("exportedPath"),
        "promoted": _find_promoted(status),
    }
    run = Run(
        name=job["metadata"]["name"],
        source=f"job {job['metadata'].get('namespace', '')}/{job['metadata']['name']}",
        phase=get_phase(job),
        sentence=status.get("message") or summarize(job),
        config=config,
        steps=records.steps,
        findings=status.get("findings", ()),
        attempts=status.get("attempts", ()),
        details={key: str(value) for key, value in details.items() if value is not None},
    )
    return _mask(records, run, secrets)


def _find_promoted(status: Mapping[str, Any]) -> str | None:
    """The condition Promoted: status and message."""
    found = [each for each in status.get("conditions", ()) if each["type"] == ConditionType.PROMOTED]
    return f"{found[0]['status']}: {found[0].get('message', '')}" if found else None


def find_broken_rules(steps: Sequence[Step]) -> list[Mapping[str, Any]]:
    """Findings of the default rules over the metrics that are broken at the latest step."""
    history = MetricHistory()
    for step in steps:
        metrics = {name: float("nan") if value is None else value for name, value in step.items()}
        history = record(history, int(metrics.pop("step")), metrics, DEFAULTS)
    entries = {entry.code: entry for entry in load_entries()}
    broken = {each.rule[:1].upper() + each.rule[1:]: each.evidence for each in list_broken(history, DEFAULTS)}
    return [
        {
            "code": code,
            "severity": entries[code].severity,
            "message": entries[code].message,
            "evidence": evidence,
            "remedy": entries[code].remedy,
            "source": entries[code].source,
        }
        for code, evidence in broken.items()
        if code in entries
    ]


async def _load_records(connection: Connection, job: Manifest, reads_volume: bool) -> RunRecords:
    name = job["metadata"]["name"]
    try:
        with convert_api_errors(connection.kube_context):  # a user may have no right to the driver
            steps = await get_history(connection, name)
    except (UnavailableError, ClusterError) as error:
        return await _load_kept_records(connection, job, reads_volume, error.message)
    try:
        rollouts = await get_rollouts(connection, name)
    except RltError as error:
        return RunRecords({}, steps, [], None, (f"No rollouts: {error.message}",))
    step = int(steps[-1]["step"] or 0) if steps else None
    return RunRecords({}, steps, select_extremes(map(shorten, rollouts), NUM_EXTREMES), step, ())


async def _load_kept_records(connection: Connection, job: Manifest, reads_volume: bool, reason: str) -> RunRecords:
    """The records in the volume, which has all of them, else those that the operator has kept."""
    if reads_volume and has_kept_files(job):
        try:
            return await read_volume(connection, job["metadata"]["name"])
        except RltError as error:
            reason = error.message
    try:
        with convert_api_errors(connection.kube_context):
            record = await get_kept_record(connection, job)
    except ClusterError:
        record = None
    if record is not None:
        return to_run_records(record, job)
    name = f"{job['metadata']['name']} -n {connection.namespace}"
    command = f" `rlt report {name}` reads the volume." if has_kept_files(job) else describe_bucket(job)
    return lack_records(reason if reads_volume and has_kept_files(job) else f"{reason}{command}")


def lack_records(reason: str) -> RunRecords:
    """The records of a job that has none, or none that can be read."""
    return RunRecords({}, [], [], None, (f"No metrics and no rollouts: {reason}",))


def _mask(records: RunRecords, run: Run, known: Sequence[str]) -> Run:
    """The run with the rollouts and notes of the records, with secrets masked."""
    secrets = [*known, *(each.value for each in find_secrets(dict(run.config), "spec"))]

    def mask(value: Any) -> Any:
        if isinstance(value, str):
            return mask_text(value, secrets)
        if isinstance(value, Mapping):
            return {key: mask(each) for key, each in value.items()}
        return [mask(each) for each in value] if isinstance(value, list | tuple) else value

    return replace(
        run,
        sentence=mask(run.sentence),
        config=mask(mask_json(dict(run.config))),
        rollouts=mask(records.rollouts),
        rollouts_step=records.rollouts_step,
        findings=mask(run.findings),
        attempts=mask(run.attempts),
        gates=mask(run.gates),
        scores=records.scores,
        notes=mask(records.notes),
        details=mask(run.details),
    )
