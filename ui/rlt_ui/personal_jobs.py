"""The jobs that one person may read, as the source of a cluster's page.

The server reads the jobs with its own rights, and shows a person those that the API server permits. It has no right to
read pods, logs, events, Secrets or the driver of a job: it reads them with the token of the person.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rlt.connection import Connection, convert_api_errors
from rlt.deleted_jobs import OPERATOR_NAMESPACE, list_readable_deleted_jobs
from rlt.errors import ClusterError, NotFoundError
from rlt.kube_context import KubeContext
from rlt.runs.pages import RolloutQuery
from rlt.runs.run import Run, build_run, lack_records
from rlt.usage import merge_deleted
from rlt_core.job import Manifest
from rlt_core.kubernetes.client import KubernetesApi
from rlt_core.kubernetes.reviews import Person, Reviews
from rlt_ui.cluster_jobs import ClusterJobs, build_cluster_row, build_version
from rlt_ui.jobs import JobList, describe_job, read_related
from rlt_ui.source import Json, UsageQuery, build_columns
from rlt_ui.usage import build_usage

OWN_RIGHTS = "This page reads pods, logs, events, metrics, rollouts, spans and records with the rights of your token."
NO_NAMESPACE = "No existing job counts: there is none in a namespace in which you can list RLTrainingJobs."


@dataclass(frozen=True)
class PersonalJobs:
    """The jobs of a person. The token is checked again with each request, so that open pages of it end."""

    jobs: ClusterJobs
    reviews: Reviews
    person: Person
    token: str
    connect: Callable[[str], Awaitable[KubernetesApi]]
    """Connects to the API server with a token alone."""
    operator: str = OPERATOR_NAMESPACE
    """The namespace of the operator, which has the usage of deleted jobs."""
    has_usage = True

    @property
    def title(self) -> str:
        """Whose jobs the page lists."""
        return f"jobs that {self.person.username} can list"

    async def list_runs(self) -> list[Json]:
        """A row for each job in the namespaces in which the person may list jobs."""
        return [build_cluster_row(job, self.jobs.history.get(job)) for job in await self._list()]

    async def read_usage(self, query: UsageQuery) -> Json:
        """The accelerator hours of the jobs in the list, and of the deleted ones that the token can read."""
        notes: list[str] = []
        deleted: list[Manifest] = []
        jobs = await self._list()
        namespaces = sorted({job["metadata"]["namespace"] for job in jobs})
        if not namespaces:
            notes.append(NO_NAMESPACE)
        try:
            async with self._connect(self.operator) as connection:
                deleted = await list_readable_deleted_jobs(connection, self.operator, namespaces, notes.append)
        except ClusterError as error:
            notes.append(explain(error))
        return build_usage(merge_deleted(jobs, deleted), query, datetime.now(UTC), notes)

    async def describe(self, run: str) -> Json:
        """The job with its status, pods and events."""
        job = await self._get(run)
        name = job["metadata"]["name"]
        async with self._as_person(job) as connection:
            pods, events, errors = await read_related(connection, name)
        return {
            **describe_job(job, pods, events),
            **build_cluster_row(job),
            "notes": list(dict.fromkeys(map(explain, errors))),
        }

    async def read_metrics(self, run: str) -> Json:
        """The latest metrics, from the driver of the job."""
        job = await self._get(run)
        try:
            async with self._as_person(job) as connection:
                return await JobList(connection).read_metrics(job["metadata"]["name"])
        except ClusterError as error:
            return build_columns([], [explain(error)])

    async def read_rollouts(self, run: str, step: int | None, query: RolloutQuery) -> Json:
        """The rollouts of a step, from the driver of the job."""
        job = await self._get(run)
        try:
            async with self._as_person(job) as connection:
                return await JobList(connection).read_rollouts(job["metadata"]["name"], step, query)
        except ClusterError as error:
            nothing = {"rollouts": [], "matched": 0, "recorded": 0}
            return {"step": step, "steps": [], **nothing, "notes": [explain(error)]}

    async def read_spans(self, run: str, step: int) -> Json:
        """The spans of a step, from the driver of the job."""
        job = await self._get(run)
        try:
            async with self._as_person(job) as connection:
                return await JobList(connection).read_spans(job["metadata"]["name"], step)
        except ClusterError as error:
            return {"step": step, "spans": [], "notes": [explain(error)]}

    async def read_changes(self, run: str) -> Json:
        """The changes of the suites, from the driver of the job."""
        job = await self._get(run)
        try:
            async with self._as_person(job) as connection:
                return await JobList(connection).read_changes(job["metadata"]["name"])
        except ClusterError as error:
            return {"suites": [], "notes": [explain(error)]}

    async def list_logs(self, run: str) -> Json:
        """The logs of the pods, and of all attempts from the driver of the job."""
        job = await self._get(run)
        try:
            async with self._as_person(job) as connection:
                return await JobList(connection).list_logs(job["metadata"]["name"])
        except ClusterError as error:
            return {"logs": [], "notes": [explain(error)]}

    async def read_log(self, run: str, log: str) -> Json:
        """The end of a log, from the API server or the driver of the job."""
        job = await self._get(run)
        async with self._as_person(job) as connection:
            return await JobList(connection).read_log(job["metadata"]["name"], log)

    async def load_run(self, run: str) -> Run:
        """The job, with the records of its driver if the token of the visitor can read them."""
        job = await self._get(run)
        try:
            async with self._as_person(job) as connection:
                return await JobList(connection).load_run(job["metadata"]["name"])
        except ClusterError as error:
            return build_run(job, lack_records(explain(error)))

    async def get_version(self, run: str | None) -> str:
        """The resource versions of the job, or of all jobs in the list."""
        jobs = await self._list() if run is None else [await self._get(run)]
        return build_version(jobs)

    async def _list(self) -> list[Manifest]:
        person = await self._authenticate()
        jobs = (await self.jobs.read()).values()
        with convert_api_errors(KubeContext()):
            namespaces = {job["metadata"]["namespace"] for job in jobs}
            visible = {each for each in namespaces if await self.reviews.may_list(person, each)}
        return [job for job in jobs if job["metadata"]["namespace"] in visible]

    async def _get(self, run: str) -> Manifest:
        """A job. Raises the same error whether it does not exist or the person may not read it."""
        person = await self._authenticate()
        namespace, _, name = run.partition("/")
        with convert_api_errors(KubeContext()):
            is_allowed = bool(namespace and name) and await self.reviews.may_get(person, namespace, name)
        job = (await self.jobs.read()).get(run) if is_allowed else None
        if job is None:
            raise NotFoundError(
                f"Job {run} does not exist, or you have no right to get it.",
                next=f"kubectl auth can-i get rltrainingjobs -n {shlex.quote(namespace)}",
            )
        return job

    async def _authenticate(self) -> Person:
        with convert_api_errors(KubeContext()):
            person = await self.reviews.authenticate(self.token)
        if person is None:
            message = "Your token is no longer valid."
            raise ClusterError(message, next="Reload the page and log in again.", status=401)
        return person

    def _as_person(self, job: Manifest) -> AbstractAsyncContextManager[Connection]:
        return self._connect(job["metadata"]["namespace"])

    @asynccontextmanager
    async def _connect(self, namespace: str) -> AsyncIterator[Connection]:
        """A connection with the token of the person. Raises ClusterError."""
        context = KubeContext(namespace=namespace)
        with convert_api_errors(context):
            api = await self.connect(self.token)
            try:
                yield Connection(api, namespace, context)
            finally:
                await api.close()


def explain(error: ClusterError) -> str:
    """Why a part of the page is missing."""
    if error.status == 401:
        return f"{OWN_RIGHTS} The API server rejects it: a token for another audience cannot read them."
    return f"{OWN_RIGHTS} {error.message}"
