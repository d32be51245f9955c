"""Measuring: a process for each rank where the training will place it, and what each of them says."""

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
from rlt_trainer.cluster.worker_group import WorkerGroup, submit
from rlt_trainer.errors import root_cause
from rlt_trainer.preflight import shared_folder
from rlt_trainer.preflight.measured import Measured, Reduction
from rlt_trainer.preflight.pod_facts import has_chat_template, pod_facts, pod_name
from rlt_trainer.preflight.probe import Probe

R = TypeVar("R")

LONGEST = 300
"""Characters of an error that are passed on."""


@dataclass(frozen=True)
class Patience:
    """How long to wait, in seconds."""

    start: float = 180.0
    """For processes to start and to import torch, from a cold disk."""
    answer: float = 60.0
    """For an answer of one that has started, and for all ranks to meet."""
    in_all: float = 480.0
    """For everything, the worker pods' own readiness in Ray included."""


@dataclass(frozen=True)
class Silent:
    """No answer, and why."""

    reason: str
    gone: bool = True
    """Whether nothing at all came; else it is an error that was raised there."""


@dataclass(frozen=True)
class Member:
    """A process, and the pod it is in."""

    actor: Any
    pod: str
    role: Role
    leads: bool
    """Whether it is the first of its pod."""
    devices: int


def measure(
    config: TrainingConfig, *, probe: type[Probe] = Probe, patience: Patience, say: Callable[[str], None]
) -> Measured:
    """Measure everything, on a Ray cluster that this process has joined. `say` is told what is being done."""
    say("waiting for the worker pods")
    members = _members(config, probe)
    say(f"waiting for {len(members)} processes to start")
    facts = _ask_each(members, Probe.facts, [(member.role,) for member in members], patience_s=patience.start)
    silent = {member.pod: fact.reason for member, fact in zip(members, facts, strict=True) if isinstance(fact, Silent)}
    told = [(member, fact) for member, fact in zip(members, facts, strict=True) if not isinstance(fact, Silent)]
    answering = [member for member, _ in told]
    leaders = [member for member in answering if member.leads]

    say("comparing clocks")
    skews = {member.pod: skew for member in leaders if (skew := _skew(member, patience.answer)) is not None}
    say("writing and reading the run directory")
    folders = _folders(config, leaders, patience.answer)
    say("connecting the pods with each other")
    connections, broken = _connect(leaders, patience.answer)
    say("reducing over all ranks")
    backend, reductions = _reduce(answering, patience.answer)
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    path = config.model.path
    return Measured(
        pods=(pod_facts(config, None, address), *(pod for member, (pod, _) in told if member.leads)),
        devices=tuple(device for _, (_, device) in told),
        silent=silent,
        folders=folders,
        skews=skews,
        connections=connections,
        broken=broken,
        backend=backend,
        reductions=reductions,
        has_chat_template=has_chat_template(path) if path and path.startswith(("/", ".")) else None,
    )


def _members(config: TrainingConfig, probe: type[Probe]) -> list[Member]:
    groups = [WorkerGroup(probe, config, training_pods(config))]
    if config.rollout_workers:
        groups.append(WorkerGroup(probe, config, rollout_pods(config)))
    return [
        Member(actor, pod, group.pods.role, number % group.pods.processes == 0, group.pods.devices)
        for group in groups
        for number, (actor, pod) in enumerate(zip(group.actors, group.pod_names(), strict=True))
    ]


def _folders(config: TrainingConfig, leaders: Sequence[Member], patience_s: float) -> tuple[Any, ...]:
    """The head writes and looks, too: it keeps the run's metrics."""
    token = uuid4().hex[:8]
    folder = shared_folder.scratch(config.run_directory, token)
    own = shared_folder.write(folder, pod_name())
    errors = [_text(answer) for answer in _ask(leaders, patience_s, Probe.write, token)]
    names = [pod_name(), *(member.pod for member in leaders)]
    written = [name for name, error in zip(names, [own, *errors], strict=True) if error is None]
    try:
        seen = _ask_each(leaders, Probe.look, [(token, error, written) for error in errors], patience_s=patience_s)
        found = [answer for answer in seen if not isinstance(answer, Silent)]
        return (shared_folder.look(folder, pod_name(), own, written), *found)
    finally:
        shared_folder.remove(folder)
        _ask(leaders, patience_s, Probe.remove, token)  # where each has a folder of its own


def _connect(leaders: Sequence[Member], patience_s: float) -> tuple[int, tuple[Any, ...]]:
    listeners = [each for each in _ask(leaders, patience_s, Probe.listen) if not isinstance(each, Silent)]
    peers = [[each for each in listeners if each.pod != member.pod] for member in leaders]
    answers = _ask_each(leaders, Probe.broken_links, [(each,) for each in peers], patience_s=patience_s)
    broken = tuple(link for answer in answers if not isinstance(answer, Silent) for link in answer)
    return sum(map(len, peers)), broken


def _reduce(members: Sequence[Member], patience_s: float) -> tuple[str, tuple[Reduction, ...]]:
    """Those that have devices like rank 0: where the training is on accelerators, engines on CPUs are not of it."""
    if not members:
        return "gloo", ()
    group = [member for member in members if bool(member.devices) == bool(members[0].devices)]
    backend = "nccl" if group[0].devices else "gloo"
    (rendezvous,) = _ask(group[:1], patience_s, Probe.rendezvous)
    if isinstance(rendezvous, Silent):
        return backend, (Reduction(group[0].pod, error=rendezvous.reason),)
    arguments = [(rendezvous, rank, len(group), backend, patience_s) for rank in range(len(group))]
    answers = _ask_each(group, Probe.all_reduce, arguments, patience_s=2 * patience_s)  # they give up by themselves
    return backend, tuple(
        Reduction(member.pod, error=answer.reason, gone=answer.gone) if isinstance(answer, Silent) else answer
        for member, answer in zip(group, answers, strict=True)
    )


def _skew(member: Member, patience_s: float) -> float | None:
    """Seconds that its clock is ahead, but for half the time that asking took."""
    before = time.time()
    (there,) = _ask([member], patience_s, Probe.clock)
    return None if isinstance(there, Silent) else there - (before + time.time()) / 2


def _ask(
    members: Sequence[Member],
    patience_s: float,
    method: Callable[Concatenate[Probe, ...], R],
    *arguments: Any,
) -> list[R | Silent]:
    return _ask_each(members, method, [arguments] * len(members), patience_s=patience_s)


def _ask_each(
    members: Sequence[Member],
    method: Callable[Concatenate[Probe, ...], R],
    arguments: Sequence[tuple[Any, ...]],
    *,
    patience_s: float,
) -> list[R | Silent]:
    """An answer or Silent of each, in order."""
    if not members:
        return []
    asked = [submit(member.actor, method, *its) for member, its in zip(members, arguments, strict=True)]
    done = set(ray.wait(asked, num_returns=len(asked), timeout=patience_s)[0])
    return [_answer(each) if each in done else Silent(f"no answer within {patience_s:.0f} s") for each in asked]


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except Exception as error:  # whatever happens there is what the checks tell of
        cause = root_cause(error)
        first_line = str(cause).strip().partition("\n")[0]
        return Silent(f"{type(cause).__name__}: {first_line[:LONGEST]}", gone=isinstance(cause, RayActorError))


def _text(answer: str | Silent | None) -> str | None:
    return answer.reason if isinstance(answer, Silent) else answer
