"""The jobs of a namespace as the source of the page, with the rights of the user's kubeconfig."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from rlt.bucket_results import describe_bucket
from rlt.connection import Connection, convert_api_errors, get_event_time
from rlt.deleted_jobs import OPERATOR_NAMESPACE, list_deleted_jobs
from rlt.errors import ClusterError, RltError
from rlt.job_state import NOT_RECONCILED, get_phase, get_reward
from rlt.kept_files import has_kept_files
from rlt.runs.kept_record import get_kept_record
from rlt.runs.pages import RolloutQuery, select_page, select_spans
from rlt.runs.records import get_changes, get_latest_history, get_rollouts, get_spans
from rlt.runs.run import Run, get_job_and_secrets, load_run
from rlt.usage import merge_deleted
from rlt_api.validation.resolved_spec import get_resolved_spec
from rlt_core.job import Manifest
from rlt_core.run_record import RunRecord
from rlt_ui.defaults import find_changed
from rlt_ui.logs import clean, list_job_logs, read_job_log
from rlt_ui.masks import mask, mask_rollouts
from rlt_ui.reward_history import RewardHistory
from rlt_ui.source import Json, UsageQuery, build_columns, sample
from rlt_ui.timeline import build_timeline, parse_time
from rlt_ui.usage import build_usage

CACHE_S = 3.0
"""Time for which the list of jobs serves all viewers."""
COMMANDS = ("status", "logs", "report")
"""What the page offers to run for a job."""
MAX_EVENTS = 100
"""Maximum number of events of a job on the page, the latest ones."""
NO_HISTORY = "No metrics by step: the program does not run, or its output has no step yet."
NO_CHANGES = "The samples that changed are in evaluation/SUITE/changes.json of the run directory."
KEPT_ROLLOUTS = "The program has ended: the best and the worst responses of its latest step are kept."


class JobList:
    """The jobs in a connection's namespace. It creates nothing in the cluster.

    `operator`: the namespace of the operator, which has the usage of deleted jobs.
    """

    has_usage = True

    def __init__(self, connection: Connection, operator: str = OPERATOR_NAMESPACE) -> None:
        self._connection = connection
        self._operator = operator
        self._jobs: list[Manifest] = []
        self._read = float("-inf")
        self._history = RewardHistory()

    @property
    def title(self) -> str:
        """The namespace."""
        return f"namespace {self._connection.namespace}"

    async def list_runs(self) -> list[Json]:
        """A row for each job."""
        return [build_row(job, self._history.get(job)) for job in await self._list()]

    async def read_usage(self, query: UsageQuery) -> Json:
        """The accelerator hours of the namespace, also of deleted jobs."""
        notes: list[str] = []
        jobs = await self._list()
        async with self._requests():
            deleted = await list_deleted_jobs(self._connection, self._operator, notes.append, all_namespaces=False)
        return build_usage(merge_deleted(jobs, deleted), query, datetime.now(UTC), notes)

    async def describe(self, run: str) -> Json:
        """The job with its status, pods and events."""
        async with self._requests():
            job = await self._connection.get_job(run)
        pods, events, errors = await read_related(self._connection, run)
        return {**describe_job(job, pods, events), "notes": [error.message for error in errors]}

    async def read_metrics(self, run: str) -> Json:
        """The latest metrics, from the driver of the job or its kept record."""
        async with self._requests():
            job = await self._connection.get_job(run)
        try:
            async with self._requests():  # a user may have no right to the driver
                steps, notes = await get_latest_history(self._connection, job)
        except ClusterError as error:
            return build_columns([], [add_command(error.message, job)])
        return build_columns(steps, notes if steps else [add_command(NO_HISTORY, job)])

    async def read_rollouts(self, run: str, step: int | None, query: RolloutQuery) -> Json:
        """The rollouts of a step, from the driver of the job. Its kept record has the best and worst of the latest."""
        async with self._requests():
            job, secrets = await get_job_and_secrets(self._connection, run)
        latest = job.get("status", {}).get("progress", {}).get("step", 0)
        steps = list(range(1, latest + 1))
        notes: list[str] = []
        try:
            async with self._requests():
                rollouts = await get_rollouts(self._connection, run, step)
            shown = step if step is not None else latest
        except RltError as error:
            record = await self._get_kept_record(job)
            if record is None or record.rollouts_step is None:
                notes = [add_command(error.message, job)]
                return {"step": step, "steps": steps, "rollouts": [], "matched": 0, "recorded": 0, "notes": notes}
            rollouts = list(record.rollouts)
            shown = record.rollouts_step
            steps = [shown]
            notes = [add_command(KEPT_ROLLOUTS, job)]
        page = select_page(lambda _: rollouts, query)
        masked = mask_rollouts(page.rollouts, secrets)
        found = {"rollouts": masked, "matched": page.matched, "recorded": page.recorded}
        return {"step": shown, "steps": steps, **found, "notes": [*notes, *page.notes]}

    async def read_spans(self, run: str, step: int) -> Json:
        """The spans of a step, from the driver of the job. Its kept record has the latest step's spans."""
        notes: list[str] = []
        async with self._requests():
            job = await self._connection.get_job(run)
        try:
            async with self._requests():
                spans = select_spans(await get_spans(self._connection, run, step), step, notes)
        except RltError as error:
            record = await self._get_kept_record(job)
            if record is None or not record.spans:
                return {"step": step, "spans": [], "notes": [add_command(error.message, job)]}
            if step != record.spans_step:
                return {"step": step, "spans": [], "notes": [f"Only the spans of step {record.spans_step} are kept."]}
            spans = [span.model_dump(exclude_none=True) for span in record.spans]
        return {"step": step, "spans": spans, "notes": notes}

    async def read_changes(self, run: str) -> Json:
        """The changes of the suites, from the driver of the job. Its kept record does not have them."""
        notes: list[str] = []
        async with self._requests():
            job, secrets = await get_job_and_secrets(self._connection, run)
        try:
            async with self._requests():
                suites = await get_changes(self._connection, run, notes)
        except RltError as error:
            return {"suites": [], "notes": [f"{error.message} {NO_CHANGES}"] if has_suites(job) else []}
        return {"suites": mask(suites, secrets), "notes": notes}

    async def _get_kept_record(self, job: Manifest) -> RunRecord | None:
        """The record that the operator has kept. None without one, or without the right to read it."""
        try:
            async with self._requests():
                return await get_kept_record(self._connection, job)
        except ClusterError:
            return None

    async def list_logs(self, run: str) -> Json:
        """The logs of the pods, and of all attempts from the driver of the job."""
        async with self._requests():
            return await list_job_logs(self._connection, run)

    async def read_log(self, run: str, log: str) -> Json:
        """The end of a log, from the API server or the driver of the job."""
        async with self._requests():
            _, secrets = await get_job_and_secrets(self._connection, run)
            text = await read_job_log(self._connection, run, log)
        return clean(text, secrets)

    async def load_run(self, run: str) -> Run:
        """The job, with the records of its driver or those that are kept. Reading the volume requires a pod."""
        async with self._requests():
            return await load_run(self._connection, run, reads_volume=False)

    async def get_version(self, run: str | None) -> str:
        """The resource versions."""
        jobs = await self._list()
        return " ".join(
            f"{job['metadata']['name']}:{job['metadata'].get('resourceVersion')}"
            for job in jobs
            if run in (None, job["metadata"]["name"])
        )

    async def _list(self) -> list[Manifest]:
        if time.monotonic() - self._read > CACHE_S:
            async with self._requests():
                self._jobs = await self._connection.list_jobs()
            self._history.record(self._jobs)
            self._read = time.monotonic()
        return self._jobs

    @asynccontextmanager
    async def _requests(self) -> AsyncIterator[None]:
        with convert_api_errors(self._connection.kube_context):
            yield


def add_command(reason: str, job: Manifest) -> str:
    """Why the page has no records of the job, and the command that gets them from its volume or bucket, if any."""
    return f"{reason} {format_report_command(job)}" if has_kept_files(job) else f"{reason}{describe_bucket(job)}"


def has_suites(job: Manifest) -> bool:
    """Whether the job has suites of evaluation."""
    return bool((get_resolved_spec(job) or job.get("spec", {})).get("evaluation"))


def format_report_command(job: Manifest) -> str:
    """The command that reads the records from the volume of the job."""
    metadata = job["metadata"]
    return f"`rlt report {metadata['name']} -n {metadata['namespace']}` reads the volume."


def build_row(job: Mapping[str, Any], rewards: Sequence[float] = ()) -> Json:
    """The row of a job in the list. `rewards`: from RewardHistory."""
    status = job.get("status", {})
    progress = status.get("progress", {})
    return {
        "id": job["metadata"]["name"],
        "name": job["metadata"]["name"],
        "phase": get_phase(job),
        "sentence": status.get("message") or NOT_RECONCILED,
        "step": progress.get("step", 0),
        "totalSteps": progress.get("totalSteps") or None,
        "reward": get_reward(progress),
        "rewards": sample(rewards),
        "model": status.get("model", ""),
        "algorithm": status.get("algorithm", ""),
        "gpus": status.get("gpus"),
        "eta": progress.get("eta"),
        "created": parse_time(job["metadata"].get("creationTimestamp")),
        "updated": parse_time(progress.get("lastUpdated") or job["metadata"].get("creationTimestamp")),
        "findings": len(status.get("findings", [])),
    }


async def read_related(
    connection: Connection, name: str
) -> tuple[list[Manifest] | None, list[Manifest] | None, list[ClusterError]]:
    """The pods and the events of a job, or None, and why they cannot be read."""
    found: list[list[Manifest] | None] = []
    errors: list[ClusterError] = []
    for read in (connection.list_pods, connection.list_events):
        try:
            with convert_api_errors(connection.kube_context):
                found.append(await read(name))
        except ClusterError as error:
            found.append(None)
            errors.append(error)
    pods, events = found
    return pods, events, errors


def describe_job(job: Mapping[str, Any], pods: list[Manifest] | None, events: list[Manifest] | None) -> Json:
    """Everything about a job but its metrics and rollouts. Secrets are masked already. None: not readable."""
    status = job.get("status", {})
    name = job["metadata"]["name"]
    config = get_resolved_spec(job) or job.get("spec", {})
    return {
        **build_row(job),
        "source": f"job {job['metadata'].get('namespace', '')}/{name}",
        "config": config,
        "changed": find_changed(config),
        **{key: status.get(key, []) for key in ("findings", "attempts", "preflight", "conditions")},
        "timeline": build_timeline(status),
        "network": status.get("network"),
        "pods": None if pods is None else [build_pod(pod) for pod in pods],
        "events": [build_event(event) for event in (events or [])[:MAX_EVENTS]],
        "details": {},
        "notes": [],
        "missing": [],
        "commands": [f"rlt {command} {name} -n {job['metadata'].get('namespace', '')}" for command in COMMANDS],
    }


def build_pod(pod: Manifest) -> Json:
    """A pod of the job."""
    status = pod.get("status", {})
    return {
        "name": pod["metadata"]["name"],
        "node": pod.get("spec", {}).get("nodeName"),
        "phase": status.get("phase"),
        "ready": any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", [])),
        "restarts": sum(each.get("restartCount", 0) for each in status.get("containerStatuses", [])),
    }


def build_event(event: Manifest) -> Json:
    """An event of the job."""
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    texts = {key: event.get(key) or "" for key in ("type", "reason", "message")}
    return {"time": get_event_time(event), "count": count, **texts}
