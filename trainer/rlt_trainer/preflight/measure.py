"""The measurements of a preflight: a process for each rank, placed as the training places its workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, TypeVar
from uuid import uuid4

import ray
from ray.exceptions import RayActorError

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.pods import Role, rollout_pods, training_pods
from rlt_trainer.cluster.rendezvous import node_address
from rlt_trainer.cluster.worker_group import WorkerGroup, submit
from rlt_trainer.errors import root_cause
from rlt_trainer.preflight import shared_folder
from rlt_trainer.preflight.measurements import BrokenLink, Folder, Measurements, Reduction
from rlt_trainer.preflight.pod_facts import get_pod_name, has_chat_template, measure_pod
from rlt_trainer.preflight.probe import Probe

R = TypeVar("R")

MAX_ERROR_CHARACTERS = 300
"""Maximum number of characters of an error in a message."""


@dataclass(frozen=True)
class Timeouts:
    """Timeouts in seconds."""

    start: float = 180.0
    """For processes to start and to import torch from a cold disk."""
    answer: float = 60.0
    """For the answer of a started process, and for all ranks to join the process group."""
    total: float = 480.0
    """For the whole preflight, including the wait for the worker pods to join Ray."""


@dataclass(frozen=True)
class NoAnswer:
    """The reason why a call has no result."""

    reason: str
    is_unresponsive: bool = True
    """Whether the process did not answer at all. False: the call raised an error in it."""


@dataclass(frozen=True)
class Member:
    """A measuring process and its pod."""

    actor: Any
    pod: str
    role: Role
    is_leader: bool
    """Whether it is the first process of its pod."""
    devices: int


def measure(
    config: TrainingConfig, *, probe: type[Probe] = Probe, timeouts: Timeouts, begin_stage: Callable[[str], None]
) -> Measurements:
    """Take all measurements on a Ray cluster that this process has joined. `begin_stage` reports each stage."""
    begin_stage("waiting for the worker pods")
    members = _start_members(config, probe)
    begin_stage(f"waiting for {len(members)} processes to start")
    facts = _call_each(members, Probe.facts, [(member.role,) for member in members], timeout_s=timeouts.start)
    answers = list(zip(members, facts, strict=True))
    unanswered = {member.pod: fact.reason for member, fact in answers if isinstance(fact, NoAnswer)}
    answered = [(member, fact) for member, fact in answers if not isinstance(fact, NoAnswer)]
    started = [member for member, _ in answered]
    leaders = [member for member in started if member.is_leader]

    begin_stage("comparing clocks")
    skews = {member.pod: skew for member in leaders if (skew := _measure_skew(member, timeouts.answer)) is not None}
    begin_stage("writing and reading the run directory")
    folders = _measure_folders(config, leaders, timeouts.answer)
    begin_stage("connecting the pods with each other")
    connections, broken = _connect(leaders, timeouts.answer)
    begin_stage("reducing over all ranks")
    backend, reductions = _reduce(started, timeouts.answer)
    path = config.model.path
    return Measurements(
        pods=(
            measure_pod(config, None, node_address()),
            *(pod for member, (pod, _) in answered if member.is_leader),
        ),
        devices=tuple(device for _, (_, device) in answered),
        unanswered=unanswered,
        folders=folders,
        skews=skews,
        connections=connections,
        broken=broken,
        backend=backend,
        reductions=reductions,
        has_chat_template=has_chat_template(path) if path and path.startswith(("/", ".")) else None,
    )


def _start_members(config: TrainingConfig, probe: type[Probe]) -> list[Member]:
    groups = [WorkerGroup(probe, config, training_pods(config))]
    if config.rollout_workers:
        groups.append(WorkerGroup(probe, config, rollout_pods(config)))
    return [
        Member(actor, pod, group.pods.role, rank % group.pods.processes == 0, group.pods.devices)
        for group in groups
        for rank, (actor, pod) in enumerate(zip(group.actors, group.pod_names(), strict=True))
    ]


def _measure_folders(config: TrainingConfig, leaders: Sequence[Member], timeout_s: float) -> tuple[Folder, ...]:
    """Write and find files in the run directory, in this pod (the head, which writes the metrics) and all others."""
    token = uuid4().hex[:8]
    folder = shared_folder.get_scratch_folder(config.run_directory, token)
    own_error = shared_folder.write_file(folder, get_pod_name())
    errors = [_get_error(answer) for answer in _call(leaders, timeout_s, Probe.write_file, token)]
    names = [get_pod_name(), *(member.pod for member in leaders)]
    written = [name for name, error in zip(names, [own_error, *errors], strict=True) if error is None]
    try:
        arguments = [(token, error, written) for error in errors]
        answers = _call_each(leaders, Probe.find_files, arguments, timeout_s=timeout_s)
        found = [answer for answer in answers if not isinstance(answer, NoAnswer)]
        return (shared_folder.find_files(folder, get_pod_name(), own_error, written), *found)
    finally:
        shared_folder.remove_folder(folder)
        # Without a shared volume, each pod has its own run directory.
        _call(leaders, timeout_s, Probe.remove_folder, token)


def _connect(leaders: Sequence[Member], timeout_s: float) -> tuple[int, tuple[BrokenLink, ...]]:
    """Connect all pods with each other. Return the number of connections and the failed ones."""
    listeners = [each for each in _call(leaders, timeout_s, Probe.listen) if not isinstance(each, NoAnswer)]
    peers = [[each for each in listeners if each.pod != member.pod] for member in leaders]
    answers = _call_each(leaders, Probe.find_broken_links, [(each,) for each in peers], timeout_s=timeout_s)
    broken = tuple(link for answer in answers if not isinstance(answer, NoAnswer) for link in answer)
    return sum(map(len, peers)), broken


def _reduce(members: Sequence[Member], timeout_s: float) -> tuple[str, tuple[Reduction, ...]]:
    """Reduce over the members whose device type is that of rank 0. Return the backend and the results.

    If the training uses accelerators, engines on CPUs are not in the process group.
    """
    if not members:
        return "gloo", ()
    group = [member for member in members if bool(member.devices) == bool(members[0].devices)]
    backend = "nccl" if group[0].devices else "gloo"
    (rendezvous,) = _call(group[:1], timeout_s, Probe.rendezvous)
    if isinstance(rendezvous, NoAnswer):
        return backend, (Reduction(group[0].pod, error=rendezvous.reason),)
    arguments = [(rendezvous, rank, len(group), backend, timeout_s) for rank in range(len(group))]
    # The process group has a timeout of its own, whose error is more precise: wait for it.
    answers = _call_each(group, Probe.all_reduce, arguments, timeout_s=2 * timeout_s)
    return backend, tuple(
        Reduction(member.pod, error=answer.reason, is_unresponsive=answer.is_unresponsive)
        if isinstance(answer, NoAnswer)
        else answer
        for member, answer in zip(group, answers, strict=True)
    )


def _measure_skew(member: Member, timeout_s: float) -> float | None:
    """Return the seconds by which the member's clock is ahead, corrected by half the duration of the call."""
    before = time.time()
    (clock,) = _call([member], timeout_s, Probe.clock)
    return None if isinstance(clock, NoAnswer) else clock - (before + time.time()) / 2


def _call(
    members: Sequence[Member],
    timeout_s: float,
    method: Callable[Concatenate[Probe, ...], R],
    *arguments: Any,
) -> list[R | NoAnswer]:
    return _call_each(members, method, [arguments] * len(members), timeout_s=timeout_s)


def _call_each(
    members: Sequence[Member],
    method: Callable[Concatenate[Probe, ...], R],
    arguments: Sequence[tuple[Any, ...]],
    *,
    timeout_s: float,
) -> list[R | NoAnswer]:
    """Call the method in each member with its own arguments. Return the results or NoAnswer, in order."""
    if not members:
        return []
    calls = [submit(member.actor, method, *its) for member, its in zip(members, arguments, strict=True)]
    done = set(ray.wait(calls, num_returns=len(calls), timeout=timeout_s)[0])
    return [_get_result(call) if call in done else NoAnswer(f"no answer within {timeout_s:.0f} s") for call in calls]


def _get_result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except Exception as error:  # a check reports any error of a process
        cause = root_cause(error)
        first_line = str(cause).strip().partition("\n")[0]
        reason = f"{type(cause).__name__}: {first_line[:MAX_ERROR_CHARACTERS]}"
        return NoAnswer(reason, is_unresponsive=isinstance(cause, RayActorError))


def _get_error(answer: str | NoAnswer | None) -> str | None:
    return answer.reason if isinstance(answer, NoAnswer) else answer
