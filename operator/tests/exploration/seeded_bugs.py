"""Bugs that a review of an earlier version found, put back by a patch each, and bugs of the same kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest import mock

from exploration.api_server import ApiServer

from rlt_api.status.conditions import ConditionType
from rlt_core.job import Job, Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.cache.store import Name, Store
from rlt_operator.conditions import format_time
from rlt_operator.lifecycle import drain, run_record, running, stopping, terminal
from rlt_operator.memory import clocks
from rlt_operator.memory.parts import PARTS
from rlt_operator.observation import Observed
from rlt_operator.reconcile import apply, plan, status
from rlt_operator.reconcile import reconcile as reconciliation
from rlt_operator.reconcile.children import write_child as write_child_of_job
from rlt_operator.verdict import Verdict


@contextmanager
def a_silent_head_ends_the_wait_for_the_program() -> Iterator[None]:
    """Item 3: a short failure of the dashboard during a suspension deletes the cluster without a last checkpoint."""
    real = stopping.is_program_running

    def is_program_running(observed: Observed) -> bool:
        return not (observed.ray and observed.ray.unreachable) and real(observed)

    with mock.patch.object(stopping, "is_program_running", is_program_running):
        yield


@contextmanager
def the_program_is_stopped_before_the_status_records_it() -> Iterator[None]:
    """Item 4: after a lost status write and a resumption, the end of the program looks like a stop outside rlt."""
    real = stopping.stop_program

    def stop_program(observed: Observed, *arguments: Any) -> Verdict | None:
        waiting = real(observed, *arguments)
        job_id = observed.submission_id
        return waiting and replace(waiting, stop=job_id)

    with mock.patch.object(running, "stop_program", stop_program):
        yield


@contextmanager
def no_clock_runs_between_a_ready_cluster_and_the_program() -> Iterator[None]:
    """Item 5: where Ray rejects the submission or does not answer, no deadline ends the job."""

    def run_pending_clock(observed: Observed, verdict: Verdict, now: datetime) -> str | None:
        is_ready = verdict.is_true(ConditionType.CLUSTER_READY)
        return None if is_ready else clocks.run_pending_clock(observed, verdict, now)

    with mock.patch.dict(PARTS, {"pending_since": run_pending_clock}):
        yield


@contextmanager
def a_users_config_map_is_taken_over() -> Iterator[None]:
    """Item 11: server-side apply with force changes a ConfigMap that the job does not own."""
    real = write_child_of_job

    async def write_child(api: KubernetesApi, job: Job, manifest: Manifest, **options: bool) -> Manifest:
        path = api_paths.path_of(manifest)
        if manifest["kind"] == "ConfigMap" and await api.get(path):
            return await api.apply(path, manifest)
        return await real(api, job, manifest, **options)

    with mock.patch.object(apply, "write_child", write_child):
        yield


@contextmanager
def pods_of_others_count_as_the_jobs() -> Iterator[None]:
    """Item 16: a user's pod with the label of the job blocks its start and its release."""

    with mock.patch.object(Observed, "job_pods", property(lambda observed: observed.pods)):
        yield


@contextmanager
def the_cache_alone_decides() -> Iterator[None]:
    """No read of the API server before a RayCluster is created: watches of two kinds are not synchronized."""

    async def refresh(self: Cache, api: KubernetesApi, key: object) -> None:
        pass

    with mock.patch.multiple(Cache, refresh=refresh, refresh_pods=refresh):
        yield


@contextmanager
def a_result_is_not_final() -> Iterator[None]:
    """A job that has ended is planned like any other."""
    with mock.patch.object(plan, "STEPS", [step for step in plan.STEPS if step is not terminal.job_is_finished]):
        yield


@contextmanager
def the_message_is_always_new() -> Iterator[None]:
    """Each reconciliation writes the status, because its message contains a new number."""
    real = status.build_status
    count = iter(range(10**9))

    def build_status(observed: Observed, verdict: Verdict, now: datetime) -> Any:
        return real(observed, replace(verdict, message=f"{verdict.message} {next(count)}"), now)

    with mock.patch.object(plan, "build_status", build_status):
        yield


@contextmanager
def a_response_restores_a_deleted_object() -> Iterator[None]:
    """The watch has delivered the deletion before the response to a request arrives, which the cache then keeps."""
    with mock.patch.object(Store, "put_response", Store.put):
        yield


@contextmanager
def a_read_removes_a_newer_object() -> Iterator[None]:
    """A read does not find an object. The watch delivers the new one of that name, and then the cache drops it."""

    def forget(self: Store[Any], name: Name, version: int | None) -> bool:
        return self._remove(name)

    with mock.patch.object(Store, "forget", forget):
        yield


@contextmanager
def a_job_ends_again() -> Iterator[None]:
    """Each reconciliation of a job that has ended sets its completion time."""
    real = status.build_status

    def build_status(observed: Observed, verdict: Verdict, now: datetime) -> Any:
        status = real(observed, verdict, now)
        return status.model_copy(update={"completion_time": format_time(now)}) if status.completion_time else status

    with mock.patch.object(plan, "build_status", build_status):
        yield


@contextmanager
def a_finalizer_stays() -> Iterator[None]:
    """A finalizer that is not removed: the job waits for an operator that ignores it."""
    real = ApiServer.delete_in_foreground

    def delete_in_foreground(self: ApiServer, path: str) -> None:
        real(self, path)
        manifest = self.get(path) or {}
        metadata = {**manifest["metadata"], "finalizers": ["rlt.dev/cleanup"]}
        self.update(path, {**manifest, "metadata": metadata})

    with mock.patch.object(ApiServer, "delete_in_foreground", delete_in_foreground):
        yield


@contextmanager
def a_cordoned_node_wakes_no_job() -> Iterator[None]:
    """The job learns of a drain at its next requeue alone."""
    with mock.patch.object(Cache, "_wake_for_node", return_value=None):
        yield


@contextmanager
def a_drain_stops_the_program_before_the_status_records_it() -> Iterator[None]:
    """After a lost status write, the end of the program on a cordoned node looks like a stop outside rlt."""
    real = stopping.stop_program

    def stop_program(observed: Observed, *arguments: Any) -> Verdict | None:
        waiting = real(observed, *arguments)
        return waiting and replace(waiting, stop=observed.submission_id)

    with mock.patch.object(drain, "stop_program", stop_program):
        yield


@contextmanager
def a_missing_answer_is_a_lost_head() -> Iterator[None]:
    """After its restart the operator has no answer of the head, and takes the program for lost."""
    with (
        mock.patch.object(reconciliation, "is_unknown", return_value=False),
        mock.patch.object(Observed, "is_head_replaced", property(lambda observed: observed.ray is None)),
    ):
        yield


@contextmanager
def the_cluster_is_deleted_without_its_record() -> Iterator[None]:
    """A failed request to store the record of the run does not stop the deletion of the cluster that has it."""
    real = run_record.find_record

    def find_record(*arguments: Any) -> Any:
        found = real(*arguments)
        return found and replace(found, retries=False)

    with mock.patch.object(plan, "find_record", find_record):
        yield


@contextmanager
def a_job_is_not_read_before_its_cluster_is_created() -> Iterator[None]:
    """After an own status write, only the pods are read. kopf may have missed the deletion of the job since then."""

    async def refresh_job(self: Cache, api: KubernetesApi, key: Name) -> None:
        """The cache is not behind the status write of this process."""

    with mock.patch.object(Cache, "refresh_job", refresh_job):
        yield
