"""The jobs of all namespaces as the source of the page, with the rights of the user's kubeconfig."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from rlt.connection import Connection, convert_api_errors
from rlt.deleted_jobs import OPERATOR_NAMESPACE, list_deleted_jobs
from rlt.errors import NotFoundError
from rlt.runs.pages import RolloutQuery
from rlt.runs.run import Run
from rlt.usage import merge_deleted
from rlt_ui.cluster_jobs import ClusterJobs, build_cluster_row, build_version
from rlt_ui.jobs import JobList
from rlt_ui.source import Json, UsageQuery
from rlt_ui.usage import build_usage


class AllJobs:
    """The jobs of all namespaces. It creates nothing in the cluster. `operator`: as of JobList."""

    has_usage = True

    def __init__(self, connection: Connection, operator: str = OPERATOR_NAMESPACE) -> None:
        self._connection = connection
        self._operator = operator
        self._jobs = ClusterJobs([connection], all_namespaces=True)

    @property
    def title(self) -> str:
        """Which jobs."""
        return "all namespaces"

    async def list_runs(self) -> list[Json]:
        """A row for each job."""
        return [build_cluster_row(job, self._jobs.history.get(job)) for job in (await self._jobs.read()).values()]

    async def read_usage(self, query: UsageQuery) -> Json:
        """The accelerator hours of all namespaces, also of deleted jobs."""
        notes: list[str] = []
        jobs = (await self._jobs.read()).values()
        with convert_api_errors(self._connection.kube_context):
            deleted = await list_deleted_jobs(self._connection, self._operator, notes.append, all_namespaces=True)
        return build_usage(merge_deleted([*jobs], deleted), query, datetime.now(UTC), notes)

    async def describe(self, run: str) -> Json:
        """The job with its status, pods and events."""
        jobs, name = await self._open(run)
        found = await jobs.describe(name)
        return {**found, "id": run, "name": run}

    async def read_metrics(self, run: str) -> Json:
        """The latest metrics, from the driver of the job."""
        jobs, name = await self._open(run)
        return await jobs.read_metrics(name)

    async def read_rollouts(self, run: str, step: int | None, query: RolloutQuery) -> Json:
        """The rollouts of a step, from the driver of the job."""
        jobs, name = await self._open(run)
        return await jobs.read_rollouts(name, step, query)

    async def read_spans(self, run: str, step: int) -> Json:
        """The spans of a step, from the driver of the job."""
        jobs, name = await self._open(run)
        return await jobs.read_spans(name, step)

    async def read_changes(self, run: str) -> Json:
        """The changes of the suites, from the driver of the job."""
        jobs, name = await self._open(run)
        return await jobs.read_changes(name)

    async def list_logs(self, run: str) -> Json:
        """The logs of the pods, and of all attempts from the driver of the job."""
        jobs, name = await self._open(run)
        return await jobs.list_logs(name)

    async def read_log(self, run: str, log: str) -> Json:
        """The end of a log, from the API server or the driver of the job."""
        jobs, name = await self._open(run)
        return await jobs.read_log(name, log)

    async def load_run(self, run: str) -> Run:
        """The job, with the records that its driver serves."""
        jobs, name = await self._open(run)
        return await jobs.load_run(name)

    async def get_version(self, run: str | None) -> str:
        """The resource versions of the job, or of all jobs."""
        jobs = await self._jobs.read()
        return build_version(jobs.values() if run is None else [jobs[run]] if run in jobs else [])

    async def _open(self, run: str) -> tuple[JobList, str]:
        """The jobs in a job's namespace, and its name. Raises NotFoundError."""
        if run not in await self._jobs.read():
            next_command = self._connection.kube_context.command_line("get -A")
            raise NotFoundError(f"Job {run} does not exist.", next=next_command)
        namespace, _, name = run.partition("/")
        context = replace(self._connection.kube_context, namespace=namespace)
        return JobList(replace(self._connection, namespace=namespace, kube_context=context)), name
