"""What always holds, as functions of one transition. Each raises Violation.

A transition of the operator is one reconciliation, or its part until a crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from exploration.api_server import parse
from exploration.environment import is_cordoned, is_foreign
from exploration.failing_jobs import FAILS, find_failure
from exploration.process import Write
from exploration.versions import NEWER_FIELD
from exploration.world import CONFIG_MAP, JOB, KEY, NAME, RAY_CLUSTER, RECORD_MAP, RIVAL, ROLLOUT, SEPARATE_SPEC, World

from rlt_api.schema.crd import KIND
from rlt_core import names
from rlt_core.kubernetes import api_paths
from rlt_operator.lifecycle.run_record import RETRY_S

RECONCILIATIONS = ("reconcile", "requeue")
"""Names of transitions that are one reconciliation without a fault."""
IDENTITY = ("rayClusterUid", "execution")
"""The fields of the status that identify an attempt."""
PROGRAM = re.compile(rf"{NAME}-([0-9a-f]{{8}})(?:-(\d+))?")
"""The ID of a program's Ray job: the first characters of its RayCluster's uid, and the number of the execution."""
LIVE = ("RUNNING", "CHECKING", "STOPPING")
"""The states of a program that has not ended."""
MIN_STOP_S = 60
"""A program has at least this time to save its state."""


class Violation(AssertionError):
    """An invariant does not hold. The text names it."""


@dataclass(frozen=True)
class Transition:
    """One step of the world."""

    name: str
    before: World
    after: World
    writes: tuple[Write, ...] | None = None
    """The writes of a reconciliation; None if the operator did nothing."""
    interrupted: bool = False
    """Whether something else happened during the reconciliation."""

    @property
    def by_operator(self) -> bool:
        return self.writes is not None


def at_most_one_live_cluster(step: Transition) -> None:
    """Neither two RayClusters of the job nor pods of two RayClusters exist at the same time."""
    world = step.after
    uids = {
        owner["uid"]
        for pod in world.pods
        for owner in pod["metadata"].get("ownerReferences", [])
        if owner["kind"] == "RayCluster"
    }
    cluster = world.server.get(RAY_CLUSTER)
    if cluster and not is_foreign(cluster):
        uids.add(cluster["metadata"]["uid"])
    if len(uids) > 1:
        raise Violation(f"two RayClusters are alive: {sorted(uids)}")


def terminal_is_sticky(step: Transition) -> None:
    """A job that has ended keeps its result, and gets no new RayCluster."""
    before = step.before.job
    after = step.after.job
    result = _get_result(before)
    if before is None or after is None or result is None or before["metadata"]["uid"] != after["metadata"]["uid"]:
        return
    if _get_result(after) != result:
        raise Violation(f"the result {result} became {_get_result(after)}")
    cluster = step.after.server.get(RAY_CLUSTER)
    if cluster and not is_foreign(cluster) and cluster["metadata"]["uid"] != _get_uid(step.before, RAY_CLUSTER):
        raise Violation("a RayCluster was created for a job that has ended")


def users_objects_are_untouched(step: Transition) -> None:
    """The operator changes no object that a user has created, and no job besides its status."""
    if not step.by_operator:
        return
    for path, text in step.before.server.objects.items():
        if step.interrupted and path == api_paths.ray_cluster(*RIVAL):  # the other job may have ended meanwhile
            continue
        if is_foreign(parse(text)) and step.after.server.objects.get(path) != text:
            raise Violation(f"{path} of a user has changed")
    before = step.before.job
    after = step.after.job
    if step.interrupted or before is None or after is None:
        return
    if _strip(before) != _strip(after):
        raise Violation("the operator has changed the job")


def program_ends_before_its_cluster(step: Transition) -> None:
    """The operator deletes the RayCluster of a program that runs only after the time to save its state."""
    before = step.before
    after = step.after
    cluster = _get_uid(step.before, RAY_CLUSTER)
    if cluster is None or ("DELETE", RAY_CLUSTER) not in (step.writes or ()):
        return
    attempt = _get_status(before.job).get("currentAttempt") or {}
    if attempt.get("rayClusterUid") != cluster or "acceptedTime" not in attempt:
        return
    program = names.submission_id(NAME, ray_cluster_uid=cluster, execution=attempt["execution"])
    state = after.ray.get(attempt["headPodUid"], {}).get(program)
    if state not in LIVE or not _has_pod(after, attempt["headPodUid"]):
        return
    if "stop" not in attempt:
        raise Violation("the RayCluster was deleted without a request to stop its program")
    if after.server.now.timestamp() - _parse_time(attempt["stop"]["time"]) < MIN_STOP_S:
        raise Violation("the RayCluster was deleted before its program could save its state")


def at_most_one_program(step: Transition) -> None:
    """Two programs of the job never run at the same time."""
    running = [
        job_id
        for head, jobs in step.after.ray.items()
        for job_id, state in jobs.items()
        if _has_pod(step.after, head) and _is_program(job_id) and state in LIVE
    ]
    if len(running) > 1:
        raise Violation(f"several programs run: {running}")


def an_execution_follows_a_recorded_end(step: Transition) -> None:
    """A program gets an earlier one's RayCluster when the status holds its end, and looks for its processes first."""
    status = _get_status(step.before.job)
    ended = {(each["rayClusterUid"], each["execution"]) for each in status.get("attempts", [])}
    for head, jobs in step.after.ray.items():
        for job_id in jobs.keys() - step.before.ray.get(head, {}).keys():
            cluster, execution = _parse_id(job_id)
            earlier = [state for other, state in jobs.items() if _is_program(other) and other != job_id]
            if execution == 1 or not _is_program(job_id) or not earlier:
                continue
            if (cluster, execution - 1) not in {(uid[:8], number) for uid, number in ended}:
                raise Violation(f"{job_id} was submitted, and the status has the ends of {sorted(ended)}")
            if jobs[job_id] == "RUNNING":
                raise Violation(f"{job_id} was submitted, and does not look for processes of the earlier program")


def an_attempt_had_its_program(step: Transition) -> None:
    """Each attempt that failed has its own Ray job, which has failed."""
    before = _get_status(step.before.job).get("attempts", [])
    after = _get_status(step.after.job).get("attempts", [])
    programs = [
        names.submission_id(NAME, ray_cluster_uid=each["rayClusterUid"], execution=each["execution"]) for each in after
    ]
    if len(set(programs)) < len(programs):
        raise Violation(f"attempts have the same Ray job: {programs}")
    is_new = step.by_operator and not step.interrupted and len(after) > len(before)
    if is_new and after[-1]["reason"] == "ProgramFailed":
        states = [jobs[programs[-1]] for jobs in step.before.ray.values() if programs[-1] in jobs]
        if states != ["FAILED"]:
            raise Violation(f"the attempt of {programs[-1]} has failed, and Ray reports {states}")


def recorded_attempts_stay(step: Transition) -> None:
    """The status of a job has each of its attempts: another failure on the same RayCluster is another attempt."""
    before = step.before.job
    after = step.after.job
    if before is None or after is None or before["metadata"]["uid"] != after["metadata"]["uid"]:
        return
    recorded, left = (
        {tuple(each[key] for key in IDENTITY) for each in _get_status(job).get("attempts", [])}
        for job in (before, after)
    )
    if recorded - left:
        raise Violation(f"the status has lost the attempts {sorted(recorded - left)}")


def own_stop_does_not_fail(step: Transition) -> None:
    """No job fails because its program was stopped: only the operator stops programs."""
    status = _get_status(step.after.job)
    reasons = [each["reason"] for each in status.get("attempts", [])]
    reasons += [each["reason"] for each in status.get("conditions", []) if each["type"] == "Failed"]
    if "Stopped" in reasons:
        raise Violation("the operator takes its own request to stop the program for a failure")


def the_operators_faults_end_no_attempt(step: Transition) -> None:
    """Crashes, lost requests and late watch events end no attempt: without a disturbance, the job does not fail."""
    status = _get_status(step.after.job)
    if not step.after.disturbed and (status.get("attempts") or status.get("phase") == "Failed"):
        raise Violation(f"{status.get('message')}")


def too_few_pods_end_the_attempt(step: Transition) -> None:
    """The loss of a pod that minReplicas needs is a disruption of the attempt, from its first record on."""
    after = _get_status(step.after.job)
    disruption = after.get("disruption") or {}
    is_new = "disruption" not in _get_status(step.before.job)
    is_running = after.get("phase") == "Running" and "stop" not in (after.get("currentAttempt") or {})
    if step.after.has_minimum and is_new and is_running and "workerGroup" in disruption:
        raise Violation(f"the program continues after {disruption}")


def a_removed_pod_is_not_a_disruption(step: Transition) -> None:
    """Without a disturbance, each pod that ends was removed by a change of their number."""
    disruption = _get_status(step.after.job).get("disruption")
    if step.after.is_elastic and not step.after.disturbed and disruption:
        raise Violation(f"the status has {disruption}")


def a_pod_disrupts_one_attempt(step: Transition) -> None:
    """The loss of a pod does not explain the end of a later execution on the same RayCluster."""
    attempts = _get_status(step.after.job).get("attempts", [])
    messages = [each["message"] for each in attempts if each.get("disruption")]
    if len(set(messages)) < len(messages):
        raise Violation(f"a pod has ended several attempts: {messages}")


def a_deadline_applies(step: Transition) -> None:
    """From the acceptance of a job to its end one of two clocks runs, unless it is suspended or restarts."""
    job = step.after.job
    status = _get_status(job)
    if not step.by_operator or step.interrupted or job is None or _get_status(step.before.job) == status:
        return
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    if "Accepted" not in conditions or _get_result(job) or job["spec"].get("suspend"):
        return
    if conditions["Running"]["reason"] == "Restarting" or status["phase"] == "Suspended":
        return
    clocks = [key for key in ("pendingSince", "activeSince") if key in status]
    if len(clocks) != 1:
        raise Violation(f"the clocks of the deadlines that run: {clocks}")


def the_record_is_stored_before_the_cluster_is_deleted(step: Transition) -> None:
    """The RayCluster of a program that has ended is deleted after the record of its run is stored.

    If the API server fails to store it, the deletion waits for a time. A head that is gone has no record.
    """
    before = step.before
    answer = before.process.poller._answers.get(KEY)
    target = before.process.poller._targets.get(KEY)
    if ("DELETE", RAY_CLUSTER) not in (step.writes or ()) or step.interrupted or step.after.job is None:
        return
    cluster = before.server.get(RAY_CLUSTER)
    if cluster is None or is_foreign(cluster):  # a user has deleted or replaced it
        return
    if answer is None or answer.record is None or target is None or not _has_pod(before, target.pod_uid):
        return
    record = step.after.server.get(RECORD_MAP)
    owners = [owner["uid"] for owner in record["metadata"]["ownerReferences"]] if record else []
    if owners != [step.after.job["metadata"]["uid"]] and not _is_overdue(step):
        raise Violation(f"the RayCluster was deleted, and the record of the run has the owners {owners}")


def _is_overdue(step: Transition) -> bool:
    """Whether the operator has tried to store the record, and the time for it is over."""
    status = _get_status(step.before.job)
    stop = (status.get("currentAttempt") or {}).get("stop") or {}
    attempts = [each["completionTime"] for each in status.get("attempts", [])]
    ends = [time for time in (status.get("completionTime"), stop.get("time"), *attempts) if time]
    seconds = step.after.server.now.timestamp() - max(map(_parse_time, ends), default=0.0)
    return seconds >= RETRY_S and ("POST", RECORD_MAP.rpartition("/")[0]) in (step.writes or ())


def a_cluster_has_a_job(step: Transition) -> None:
    """A RayCluster is created for a job that exists, whatever kopf has not reported of its deletion."""
    created = ("POST", RAY_CLUSTER.rpartition("/")[0]) in (step.writes or ())
    if created and not step.interrupted and step.before.job is None:
        raise Violation("a RayCluster was created for a deleted job")


def mounted_programs_stay(step: Transition) -> None:
    """The operator does not delete the programs that a RayCluster mounts, also if they are another version's."""
    if step.after.programs and ("DELETE", step.after.programs) in (step.writes or ()):
        raise Violation(f"{step.after.programs} was deleted, which the RayCluster mounts")


def another_version_changes_no_child(step: Transition) -> None:
    """What the pods of a RayCluster mount stays as the version wrote it that created it."""
    for path in (CONFIG_MAP, RAY_CLUSTER):
        before = step.before.server.get(path)
        after = step.after.server.get(path)
        if not step.by_operator or before is None or after is None:
            continue
        has_cluster = _get_uid(step.before, RAY_CLUSTER) == _get_uid(step.after, RAY_CLUSTER) is not None
        is_same = before["metadata"]["uid"] == after["metadata"]["uid"]
        if has_cluster and is_same and _get_content(before) != _get_content(after):
            raise Violation(f"{path} has changed while its RayCluster exists")


def what_another_version_recorded_stays(step: Transition) -> None:
    """The resolved spec of a job stays, and so do the fields that only the newer version knows."""
    before = step.before.job
    after = step.after.job
    if before is None or after is None or before["metadata"]["uid"] != after["metadata"]["uid"]:
        return
    old = _get_status(before)
    new = _get_status(after)
    for field in ("resolvedSpec", NEWER_FIELD):
        if field in old and old[field] != new.get(field):
            raise Violation(f"status.{field} was changed")
    attempt = old.get("currentAttempt", {})
    current = new.get("currentAttempt", {})
    is_same = [attempt.get(key) for key in IDENTITY] == [current.get(key) for key in IDENTITY]
    if NEWER_FIELD in attempt and is_same and current.get(NEWER_FIELD) != attempt["rayClusterUid"]:
        raise Violation(f"status.currentAttempt.{NEWER_FIELD} was removed")


def a_failing_job_is_quarantined(step: Transition) -> None:
    """A job on which the operator fails gets a report and a delay, and nothing else. The repaired job has neither."""
    if step.interrupted or step.name not in RECONCILIATIONS:
        return
    before = step.before.process
    known = before.cache.get_job(KEY)
    failure = find_failure(known)
    quarantined = before.quarantine.get(KEY)
    waits = [each.retry_at > step.after.server.seconds for each in (quarantined, before.failures.get(KEY)) if each]
    if known is None or any(waits):
        return
    counted = step.after.process.quarantine.get(KEY)
    if failure is None and counted and find_failure(step.before.job) is None:
        raise Violation("the job can be reconciled, and is still quarantined")
    report = ("PATCH", f"{JOB}/status")
    if failure == FAILS and set(step.writes or ()) - {report}:
        raise Violation(f"the operator fails on the job, and has written {step.writes}")
    answer = before.poller._answers.get(KEY)
    if failure == FAILS and answer and not answer.unreachable:  # the answer of the head may be the cause
        return
    if failure is not None and counted in (None, quarantined):
        raise Violation(f"the reconciliation of the job {failure}, and is not delayed")
    exists = step.before.job is not None and "deletionTimestamp" not in step.before.job["metadata"]
    if failure == FAILS and exists and report not in (step.writes or ()):
        raise Violation("the operator fails on the job, and does not report it")


def a_namespace_stays_within_its_maximum(step: Transition) -> None:
    """No RayCluster is created while others have the accelerators of the namespace, whichever replica created them."""
    created = ("POST", RAY_CLUSTER.rpartition("/")[0]) in (step.writes or ())
    if created and not step.interrupted and api_paths.ray_cluster(*RIVAL) in step.before.server.objects:
        raise Violation("a RayCluster was created beside one that has all accelerators of the namespace")


INVARIANTS: tuple[Callable[[Transition], None], ...] = (
    at_most_one_live_cluster,
    terminal_is_sticky,
    users_objects_are_untouched,
    program_ends_before_its_cluster,
    at_most_one_program,
    an_execution_follows_a_recorded_end,
    an_attempt_had_its_program,
    recorded_attempts_stay,
    own_stop_does_not_fail,
    the_operators_faults_end_no_attempt,
    too_few_pods_end_the_attempt,
    a_removed_pod_is_not_a_disruption,
    a_pod_disrupts_one_attempt,
    a_deadline_applies,
    the_record_is_stored_before_the_cluster_is_deleted,
    a_cluster_has_a_job,
    mounted_programs_stay,
    another_version_changes_no_child,
    what_another_version_recorded_stays,
    a_failing_job_is_quarantined,
    a_namespace_stays_within_its_maximum,
)


def check(step: Transition) -> None:
    """Raise Violation if an invariant does not hold."""
    for invariant in INVARIANTS:
        try:
            invariant(step)
        except Violation as violation:
            raise Violation(f"{invariant.__name__}: {violation}") from None


def stays_on_cordoned_node(world: World) -> str | None:
    """The problem of a program on a cordoned node without a request to stop it; None otherwise."""
    job = world.job
    if job is None or "deletionTimestamp" in job["metadata"] or not is_cordoned(world) or _get_result(job):
        return None
    if world.process.failures or world.process.quarantine or "stop" in (_get_status(job).get("currentAttempt") or {}):
        return None
    left = [pod["metadata"]["name"] for pod in world.pods if pod.get("spec", {}).get("nodeName") == "node"]
    return f"a_cordoned_node_is_left: {left} still run on it" if left else None


def is_not_scaled(world: World) -> str | None:
    """The problem of a program without the number of rollout pods that its job wants; None otherwise."""
    cluster = world.server.get(RAY_CLUSTER)
    if world.job is None or cluster is None or is_foreign(cluster) or not world.is_elastic or world.process.failures:
        return None  # a request that has failed is repeated later
    wanted = world.job["spec"].get("rolloutReplicas", 2)
    group = cluster["spec"]["workerGroupSpecs"][1]
    named = group.get("scaleStrategy", {}).get("workersToDelete", [])
    pods = [pod for pod in world.pods if pod["metadata"]["labels"].get(names.RAY_GROUP_LABEL) == ROLLOUT]
    if (group["replicas"], len(pods), named) == (wanted, wanted, []):
        return None
    return f"the_pods_are_as_many_as_wanted: {wanted} are, {len(pods)} exist, {group['replicas']} and {named} are set"


def is_lost_pod_recorded(world: World) -> str | None:
    """The problem of a program whose lost rollout pod explains a later failure, although its successor is ready."""
    job = world.job
    if job is None or "deletionTimestamp" in job["metadata"] or world.process.failures:
        return None
    disruption = _get_status(job).get("disruption") or {}
    pods = [pod for pod in world.pods if not is_foreign(pod)]
    ready = [pod for pod in pods if pod["status"].get("conditions") and "deletionTimestamp" not in pod["metadata"]]
    is_complete = len(ready) == len(pods) == len(SEPARATE_SPEC["cluster"]["workers"]) + 1
    if "workerGroup" not in disruption or not is_complete:
        return None
    return f"a_replaced_pod_is_forgotten: all pods are ready, and the status has {disruption}"


def is_settled(world: World) -> str | None:
    """The problem of a world without further transitions; None if there is none."""
    job = world.job
    objects = {path: parse(text) for path, text in world.server.objects.items()}
    owned = [path for path, each in objects.items() if each["kind"] not in (KIND, "Node") and not is_foreign(each)]
    if job is None or "deletionTimestamp" in job["metadata"]:
        left = [*owned, *([JOB] if job else [])]
        return f"deletion_never_wedges: left after the deletion of the job: {left}" if left else None
    status = _get_status(job)
    phase = status.get("phase")
    released = not any("/rayclusters/" in path or "/pods/" in path for path in owned)
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    ended = phase in ("Succeeded", "Failed") and _get_result(job)
    suspended = phase == "Suspended" and job["spec"].get("suspend")
    if (ended or suspended) and released and conditions["Reconciling"]["status"] == "False":
        is_stalled = "Stalled" in conditions and phase != "Failed"
        return f"job_converges: it is still stalled: {conditions['Stalled']['message']}" if is_stalled else None
    foreign = [path for path, text in world.server.objects.items() if is_foreign(parse(text)) and "/pods/" not in path]
    if foreign and conditions.get("Stalled", {}).get("reason") == "NameTaken":
        return None
    if world.has_lost_programs:
        return None
    return f"job_converges: {phase}, {status.get('message')}, objects {owned}"


def _is_program(job_id: str) -> bool:
    return PROGRAM.fullmatch(job_id) is not None


def _parse_id(job_id: str) -> tuple[str, int]:
    """The first characters of its RayCluster's uid, and the number of the execution, also of other Ray jobs."""
    match = PROGRAM.match(job_id)
    assert match
    return match[1], int(match[2] or 1)


def _get_status(job: Any) -> dict[str, Any]:
    status: dict[str, Any] = (job or {}).get("status", {})
    return status


def _get_result(job: Any) -> tuple[str, str, str] | None:
    """Type and reason of the final condition, and the completion time."""
    status = _get_status(job)
    final = [each for each in status.get("conditions", []) if each["type"] in ("Succeeded", "Failed")]
    return next(
        ((each["type"], each["reason"], status["completionTime"]) for each in final if each["status"] == "True"), None
    )


def _get_uid(world: World, path: str) -> str | None:
    manifest = world.server.get(path)
    return manifest["metadata"]["uid"] if manifest else None


def _get_content(manifest: dict[str, Any]) -> Any:
    """What an operator writes once: all but the number of pods."""
    spec = manifest.get("spec") or {}
    groups = [
        {name: value for name, value in group.items() if name not in ("replicas", "scaleStrategy")}
        for group in spec.get("workerGroupSpecs", [])
    ]
    return manifest.get("data"), spec | {"workerGroupSpecs": groups}


def _has_pod(world: World, uid: str) -> bool:
    return any(pod["metadata"]["uid"] == uid for pod in world.pods)


def _strip(job: dict[str, Any]) -> Any:
    metadata = {key: value for key, value in job["metadata"].items() if key != "resourceVersion"}
    return metadata, job["spec"]


def _parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
