"""Access to the jobs of a cluster, with the credentials of the user's kubeconfig. All calls block."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from rlt.event_loop import BackgroundLoop, Stream
from rlt.job import Job
from rlt.kube_context import KubeContext

if TYPE_CHECKING:
    import pandas
    import polars

    from rlt.connection import Connection
    from rlt.frames import Library

Result = TypeVar("Result")


class Client:
    """The jobs of one namespace. Methods take a job or its name; a job with a namespace is looked up there.

    All methods raise RltError: its `next` is the command line that helps.
    """

    def __init__(
        self, namespace: str | None = None, *, context: str | None = None, kubeconfig: str | None = None
    ) -> None:
        """Connect as kubectl does: KUBECONFIG, its current context and the namespace of that."""
        from rlt.connection import open_connection

        self._loop = BackgroundLoop()
        try:
            self._connection = self._loop.run(open_connection(KubeContext(namespace, context, kubeconfig)))
        except BaseException:
            self._loop.close()
            raise
        self._close = weakref.finalize(self, self._loop.close, self._connection.api.close)

    @property
    def namespace(self) -> str:
        """The namespace of jobs without one."""
        return self._connection.namespace

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. They are also closed when the client is deleted, and at the end of the program."""
        self._close()

    def submit(self, job: Job, *, dry_run: bool = False, force_conflicts: bool = False) -> Job:
        """Submit a job and the runtimes of its file with server-side apply, after their validation.

        `dry_run`: the API server and the webhook process the job and store nothing. `force_conflicts` overwrites
        fields that other field managers changed. Returns the stored job. Raises InvalidJobError and FieldConflictError.
        """
        from rlt.validation import drop_server_fields
        from rlt_api.spec.runtime_policy import RuntimePolicy

        job.check(RuntimePolicy(unknown=True))

        async def apply(connection: Connection) -> Job:
            for manifest in (*job.runtimes, job.manifest):
                prepared = connection.with_namespace(drop_server_fields(manifest))
                stored = await connection.apply(prepared, force=force_conflicts, dry_run=dry_run)
            return Job.from_manifest(stored)

        return self._call(job, apply)

    def get(self, job: Job | str) -> Job:
        """The job with its current status. Raises NotFoundError."""
        name = _name(job)
        return self._call(job, lambda connection: _parse(connection.get_job(name)))

    def list(self, *, all_namespaces: bool = False, selector: str | None = None) -> list[Job]:
        """The jobs of the namespace or of all namespaces that match a label selector, such as team=a."""

        async def load(connection: Connection) -> list[Job]:
            found = await connection.list_jobs(all_namespaces=all_namespaces, selector=selector)
            return [Job.from_manifest(each) for each in found]

        return self._call(None, load)

    def follow(self, job: Job | str) -> Stream[Job]:
        """The job now and after each change, until it has ended or is deleted; for `for` and `async for`.

        A watch delivers the changes. After a lost connection, the first item is the current state.
        """

        async def observe(connection: Connection) -> AsyncGenerator[Job]:
            async for manifest in connection.watch_job(_name(job)):
                observed = Job.from_manifest(manifest)
                yield observed
                if observed.has_ended:
                    return

        return self._stream(job, observe)

    def show(self, job: Job | str) -> Job:
        """Follow a job until it has ended: in a notebook with a progress bar and charts of its metrics, which are
        updated in place, elsewhere with a line for each change. Returns the job."""
        from rlt.notebook.live_view import LiveView, Steps, keep_steps

        view = LiveView()
        steps = dict[int, Any]()
        last = None
        for last in self.follow(job):
            progress = last.status.progress
            kept: Steps = keep_steps(steps, progress.step if progress else 0)
            # The latest step is read again: its row gets the values of suites after it.
            steps = {**kept, **self._read_steps(job, since=max(kept, default=1) - 1)}
            view.update(last.manifest, [steps[number] for number in sorted(steps)])
        return last or self.get(job)

    def wait(self, job: Job | str, condition: str = "Succeeded", *, timeout: float | None = None) -> Job:
        """Wait until a condition is True, at most `timeout` seconds. Returns the job.

        `condition` is a type, or a type and a status: "Suspended=False". Raises UnknownConditionError before it
        connects, JobFailedError if the condition cannot become True, and WaitTimeoutError.
        """
        from rlt.lifecycle import wait_for_condition
        from rlt.wanted_condition import parse_wanted_condition

        name = _name(job)
        wanted = parse_wanted_condition(condition)
        return self._call(job, lambda connection: _parse(wait_for_condition(connection, name, wanted, timeout)))

    @overload
    def metrics(self, job: Job | str, *, since: int = 0, library: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...
    @overload
    def metrics(self, job: Job | str, *, since: int = 0, library: Literal["polars"]) -> polars.DataFrame: ...
    def metrics(
        self, job: Job | str, *, since: int = 0, library: Library = "pandas"
    ) -> pandas.DataFrame | polars.DataFrame:
        """The metrics of each step after `since`. Raises UnavailableError and MissingExtraError.

        After the end of the program they are from the kept record, which has the last 400 steps, else from the volume.
        """
        from rlt.frames import build_frame
        from rlt.runs.records import find_history

        history, _ = self._call(job, lambda connection: find_history(connection, _name(job), since))
        return build_frame(history, library)

    def rollouts(self, job: Job | str, step: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Prompts, responses and rewards of a step, by default the latest. Raises UnavailableError.

        After the end of the program, the best and worst of the latest step.
        """
        from rlt.runs.records import find_rollouts

        return self._call(job, lambda connection: find_rollouts(connection, _name(job), step))[1]

    def logs(self, job: Job | str, *, tail: int | None = None) -> str:
        """The output of the program, or its last lines. After its end, a pod that reads the volume runs for seconds."""
        from rlt.program_log import get_program_log, take_last_lines

        return take_last_lines(self._call(job, lambda connection: get_program_log(connection, _name(job))), tail)

    def follow_logs(self, job: Job | str, *, tail: int | None = None) -> Stream[str]:
        """The output of the program in parts as it arrives, until the program ends."""
        from rlt.program_log import follow_program_log

        return self._stream(job, lambda connection: follow_program_log(connection, _name(job), tail))

    def export(self, job: Job | str, step: int | None = None, *, dry_run: bool = False) -> dict[str, Any]:
        """Export the checkpoint of a step, by default the latest, as a model in Hugging Face format.

        Returns the Job (batch/v1) that runs the export; `dry_run` creates none. Raises UnavailableError without a
        checkpoint to export.
        """
        from rlt.exports import export_checkpoint

        return self._call(job, lambda connection: export_checkpoint(connection, _name(job), step, dry_run=dry_run))

    def cancel(self, job: Job | str) -> Job:
        """Stop a job permanently; a running program may save a checkpoint. The job object and its files are kept."""
        from rlt.lifecycle import cancel_job

        return self._call(job, lambda connection: _parse(cancel_job(connection, _name(job))))

    def suspend(self, job: Job | str) -> Job:
        """Release the cluster of a job and keep its checkpoints."""
        return self._set_suspend(job, True)

    def resume(self, job: Job | str) -> Job:
        """Resume a suspended job from its latest checkpoint."""
        return self._set_suspend(job, False)

    def scale(self, job: Job | str, replicas: int) -> Job:
        """Set the number of pods that only generate, from minReplicas to maxReplicas, while the job runs."""
        from rlt.lifecycle import scale_job

        return self._call(job, lambda connection: _parse(scale_job(connection, _name(job), replicas)))

    def delete(self, job: Job | str) -> None:
        """Delete a job and its cluster. The files in its volumes are kept."""
        from rlt.lifecycle import delete_jobs

        self._call(job, lambda connection: delete_jobs(connection, _name(job)))

    def _read_steps(self, job: Job | str, since: int) -> dict[int, dict[str, float | None]]:
        """The metrics of the steps after `since`. Empty without a running program that serves them."""
        from rlt.errors import UnavailableError
        from rlt.runs.records import get_history

        try:
            found = self._call(job, lambda connection: get_history(connection, _name(job), since))
        except UnavailableError:
            return {}
        return {int(step["step"] or 0): step for step in found}

    def _set_suspend(self, job: Job | str, suspend: bool) -> Job:
        from rlt.lifecycle import set_suspend

        return self._call(job, lambda connection: _parse(set_suspend(connection, _name(job), suspend)))

    def _connection_of(self, job: Job | str | None) -> Connection:
        """The connection, in the namespace of the job."""
        namespace = job.namespace if isinstance(job, Job) else None
        if namespace is None:
            return self._connection
        kube_context = replace(self._connection.kube_context, namespace=namespace)
        return replace(self._connection, namespace=namespace, kube_context=kube_context)

    def _call(self, job: Job | str | None, start: Callable[[Connection], Coroutine[Any, Any, Result]]) -> Result:
        from rlt.connection import convert_api_errors

        connection = self._connection_of(job)
        with convert_api_errors(connection.kube_context):
            return self._loop.run(start(connection))

    def _stream(self, job: Job | str, start: Callable[[Connection], AsyncGenerator[Result]]) -> Stream[Result]:
        from rlt.connection import convert_api_errors

        async def items() -> AsyncGenerator[Result]:
            connection = self._connection_of(job)  # the stream keeps its client
            with convert_api_errors(connection.kube_context):
                async with aclosing(start(connection)) as found:
                    async for each in found:
                        yield each

        return Stream(self._loop, items)


def _name(job: Job | str) -> str:
    return job.name if isinstance(job, Job) else job


async def _parse(request: Coroutine[Any, Any, dict[str, Any]]) -> Job:
    return Job.from_manifest(await request)
