"""Bugs that a review of an earlier version found, put back by a patch each, and bugs of the same kinds."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest import mock

from exploration.api_server import ApiServer

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType
from rlt_api.status.job_status import Attempt, CurrentAttempt
from rlt_core import entrypoint, names
from rlt_core import job as jobs
from rlt_core.job import Job, Manifest
from rlt_core.kubernetes import api_paths, fair_queue, fair_slots
from rlt_core.kubernetes.client import KubernetesApi
from rlt_core.kubernetes.fair_queue import Urgency
from rlt_core.kubernetes.fair_slots import FairSlots
from rlt_core.shards import Shard
from rlt_operator import leader_election, scaling
from rlt_operator.cache.cache import Cache
from rlt_operator.cache.store import Name, Store
from rlt_operator.conditions import format_time
from rlt_operator.leader_election import LeaderElection
from rlt_operator.lifecycle import (
    admission,
    disrupted,
    in_place,
    restarts,
    run_record,
    running,
    scaled,
    stopping,
    terminal,
)
from rlt_operator.memory import attempts, clocks, disruption
from rlt_operator.memory.parts import PARTS
from rlt_operator.observation import Config, NamespaceUse, Observed, RayCluster
from rlt_operator.reconcile import apply, blocking, children, namespace_use, plan, status, unused_programs
from rlt_operator.reconcile import reconcile as reconciliation
from rlt_operator.reconcile.backoff import Backoff
from rlt_operator.reconcile.children import write_child as write_child_of_job
from rlt_operator.reconcile.failures import Failures
from rlt_operator.verdict import Submission, Verdict
from rlt_operator.work_queue import Key


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
def a_lost_rollout_pod_is_never_replaced() -> Iterator[None]:
    """The first lost rollout pod explains each later failure, so that maxRestarts limits nothing."""
    with mock.patch.object(disruption, "_is_complete", return_value=False):
        yield


@contextmanager
def the_pods_of_an_earlier_execution_count() -> Iterator[None]:
    """A pod that an earlier execution has lost explains the end of the next one, so that maxRestarts limits nothing."""
    with mock.patch.object(Store, "forget_removed"):
        yield


@contextmanager
def too_few_rollout_pods_are_not_noticed() -> Iterator[None]:
    """The program continues below minReplicas."""
    with mock.patch.object(disrupted, "_find_loss", return_value=None):
        yield


@contextmanager
def the_end_of_a_removed_pod_is_a_disruption() -> Iterator[None]:
    """A smaller number of rollout pods counts as the loss of one."""
    with mock.patch.object(RayCluster, "removed_by_scaling", frozenset()):
        yield


@contextmanager
def the_pods_to_delete_are_not_named() -> Iterator[None]:
    """KubeRay chooses them, so that the operator cannot tell them from lost ones."""
    with mock.patch.object(scaling, "choose_pods", return_value=[]):
        yield


@contextmanager
def the_names_of_deleted_pods_stay() -> Iterator[None]:
    """KubeRay reads them again at each reconciliation."""
    real = scaling.plan_scaling

    def plan_scaling(observed: Observed) -> scaling.Scaling | None:
        found = real(observed)
        groups = observed.owned_cluster.groups if observed.owned_cluster else ()
        sizes = {each.name: each.replicas for each in groups}
        return None if found and sizes[found.before.name] == found.replicas else found

    with mock.patch.object(scaled, "plan_scaling", plan_scaling):
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

    with mock.patch.object(disrupted, "stop_program", stop_program):
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
def the_programs_of_another_version_are_deleted() -> Iterator[None]:
    """The new leader looks for RayClusters that mount them in its cache alone, which may be behind."""

    async def is_mounted(*arguments: object) -> bool:
        return False

    with mock.patch.object(unused_programs, "_is_mounted", is_mounted):
        yield


@contextmanager
def an_upgrade_writes_the_config_map_again() -> Iterator[None]:
    """The ConfigMap of a RayCluster has to be as this version renders it."""
    real = plan._restore_config

    def restore_config(job: Job, spec: RLTrainingJobSpec, found: Config | None) -> tuple[Manifest, ...]:
        return real(job, spec, found and replace(found, is_unchanged=False))

    with (
        mock.patch.object(plan, "_restore_config", restore_config),
        mock.patch.object(children, "_is_unchanged_config", return_value=False),
    ):
        yield


@contextmanager
def a_rollback_loses_what_the_newer_version_recorded() -> Iterator[None]:
    """A status write has no fields that this version does not know."""
    with mock.patch.object(jobs, "_list_newer_fields", return_value={}):
        yield


@contextmanager
def the_report_of_a_failure_ends_its_delay() -> Iterator[None]:
    """The watch event of the operator's own report counts as a change by the user."""
    real = Backoff.set_resource_version

    def set_resource_version(self: Backoff, key: Key, version: str) -> None:
        real(self, key, str(int(version) - 1))

    with mock.patch.object(Backoff, "set_resource_version", set_resource_version):
        yield


@contextmanager
def a_repaired_job_stays_in_quarantine() -> Iterator[None]:
    """A success does not reset the delay: the next failure has a longer one."""
    with mock.patch.object(Failures, "end_quarantine"):
        yield


@contextmanager
def a_job_that_blocks_is_not_delayed() -> Iterator[None]:
    """Each reconciliation of the job blocks all others, as often as its objects change."""
    with mock.patch.object(blocking, "MAX_BLOCKING_S", 10.0):
        yield


@contextmanager
def the_processes_of_the_earlier_program_are_not_looked_for() -> Iterator[None]:
    """The next program starts as soon as Ray reports the end of the earlier one."""
    with mock.patch.object(entrypoint, "_build_clear_options", return_value=[]):
        yield


@contextmanager
def processes_of_the_earlier_program_count_as_a_failure() -> Iterator[None]:
    """A program that has found them has failed, and another one follows on the same RayCluster."""
    real = in_place.earlier_execution_remains
    with mock.patch.object(plan, "READY_STEPS", [step for step in plan.READY_STEPS if step is not real]):
        yield


@contextmanager
def the_next_program_has_the_id_of_the_earlier_one() -> Iterator[None]:
    """Ray ignores the submission, and the operator reads the end of the earlier program again."""

    def submission_id(job: str, *, ray_cluster_uid: str, execution: int = 1) -> str:
        return f"{job}-{ray_cluster_uid[:8]}"

    with mock.patch.object(names, "submission_id", submission_id):
        yield


@contextmanager
def the_next_program_is_submitted_with_the_decision() -> Iterator[None]:
    """The status that records the end of the earlier program may not be written."""
    real = restarts.restart_failed_attempt

    def restart_failed_attempt(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
        restarted = real(observed, verdict, now)
        cluster = observed.cluster
        if restarted.execution is None or cluster is None or observed.job.spec is None:
            return restarted
        job_id = names.submission_id(observed.job.name, ray_cluster_uid=cluster.uid, execution=restarted.execution)
        return replace(restarted, submit=Submission("the job", job_id, "rlt-trainer"))

    with mock.patch.object(terminal, "restart_failed_attempt", restart_failed_attempt):
        yield


@contextmanager
def a_replaced_head_gets_the_next_program() -> Iterator[None]:
    """The status names the earlier head, and no other one may get a Ray job."""
    with mock.patch.object(Observed, "is_head_replaced", property(lambda observed: False)):
        yield


@contextmanager
def a_ray_cluster_is_one_attempt() -> Iterator[None]:
    """The second failure on a RayCluster replaces the first one."""

    def identify(attempt: Attempt | CurrentAttempt) -> str:
        return attempt.ray_cluster_uid

    with mock.patch.object(attempts, "identify", identify):
        yield


@contextmanager
def a_namespace_spends_nothing() -> Iterator[None]:
    """A namespace keeps its turn as long as it has requests."""
    with mock.patch.object(fair_queue, "_Waiting", functools.partial(fair_queue._Waiting, credit=1000)):
        yield


@contextmanager
def progress_goes_before_stops() -> Iterator[None]:
    """The least urgent request of a namespace is sent first."""

    def find_next(self: fair_queue._Waiting[Any]) -> Urgency | None:
        return next((urgency for urgency in reversed(Urgency) if self.items[urgency]), None)

    with mock.patch.object(fair_queue._Waiting, "find_next", find_next):
        yield


@contextmanager
def a_cancelled_request_keeps_its_slot() -> Iterator[None]:
    """A request that is cancelled in the moment in which it gets a slot does not release it."""

    @asynccontextmanager
    async def hold(self: FairSlots, cost: int = 1) -> AsyncIterator[None]:
        flow = fair_slots._flow.get()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.push(flow, cost, turn)
        self._start()
        await turn
        try:
            yield
        finally:
            self._release(flow)

    with mock.patch.object(FairSlots, "hold", hold):
        yield


@contextmanager
def the_accelerators_of_others_do_not_count() -> Iterator[None]:
    """The maximum of the namespace applies to each job alone."""
    with mock.patch.object(NamespaceUse, "fits", property(lambda use: use.needed <= use.maximum)):
        yield


@contextmanager
def a_leader_trusts_its_watch_of_ray_clusters() -> Iterator[None]:
    """It lacks one that the leader before it has created a moment before."""

    async def complete(api: KubernetesApi, cache: Cache, path: str) -> None:
        """Reads nothing."""

    with mock.patch.object(namespace_use, "_complete", complete):
        yield


@contextmanager
def a_job_that_waits_for_accelerators_is_not_requeued() -> Iterator[None]:
    """The deletion of another job's RayCluster does not wake it."""
    real = admission.accelerators_in_use

    def accelerators_in_use(*arguments: Any) -> Verdict | None:
        verdict = real(*arguments)
        return verdict and replace(verdict, requeue_after=None)

    steps = [accelerators_in_use if step is real else step for step in plan.READY_STEPS]
    with mock.patch.object(plan, "READY_STEPS", steps):
        yield


@contextmanager
def a_job_is_not_read_before_its_cluster_is_created() -> Iterator[None]:
    """After an own status write, only the pods are read. kopf may have missed the deletion of the job since then."""

    async def refresh_job(self: Cache, api: KubernetesApi, key: Name) -> None:
        """The cache is not behind the status write of this process."""

    with mock.patch.object(Cache, "refresh_job", refresh_job):
        yield


@contextmanager
def a_shard_needs_no_shared_lease() -> Iterator[None]:
    """The Lease of its shard is enough, so that a process without shards leads at the same time."""
    real = LeaderElection.__init__

    def init(self: LeaderElection, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        self._shared = None

    with mock.patch.object(LeaderElection, "__init__", init):
        yield


@contextmanager
def all_numbers_of_shards_share_a_lease() -> Iterator[None]:
    """The holder of the shared Lease does not say how many shards there are."""
    with mock.patch.object(Shard, "group", "shards"):
        yield


@contextmanager
def a_leader_trusts_its_renewal_for_too_long() -> Iterator[None]:
    """It leads until others may take the Lease, and two seconds longer."""
    with mock.patch.object(leader_election, "RENEW_DEADLINE_S", leader_election.LEASE_DURATION_S + 2):
        yield
