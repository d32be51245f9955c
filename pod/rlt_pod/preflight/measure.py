"""The measurements of each stage, taken by the measuring processes and, in the head pod, by this process."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rlt_pod.preflight.facts.all_reduce import Reduction, Rendezvous, compute_bus_bandwidth
from rlt_pod.preflight.facts.chat_template import TemplateProblem, find_problem, import_jinja, read_template
from rlt_pod.preflight.facts.hub import HubProblem, find_hub_problems
from rlt_pod.preflight.facts.objects import ObjectProblem, find_object_problems
from rlt_pod.preflight.facts.pairs import Pair, choose_rounds
from rlt_pod.preflight.members import Member, NoAnswer, RayNode, call, call_each
from rlt_pod.preflight.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rlt_pod.preflight.expected import Expected
    from rlt_pod.preflight.facts.bucket import BucketFacts
    from rlt_pod.preflight.facts.connections import BrokenLink
    from rlt_pod.preflight.facts.data_facts import DataFacts
    from rlt_pod.preflight.facts.network_facts import NetworkFacts
    from rlt_pod.preflight.facts.service_facts import Device, ServiceFacts
    from rlt_pod.preflight.facts.shared_folder import Folder

JOIN_TIMEOUTS = 3
"""Wait for this multiple of a process group's own timeout, because its error is more precise.

If rank 0 does not answer, the other ranks raise that error after more than twice the timeout (torch 2.13: the client of
TCPStore tries to connect until the timeout, waits, and tries a second time).
"""


@dataclass(frozen=True)
class Timeouts:
    """Timeouts in seconds."""

    join: float = 60.0
    """For the workers to join Ray. The pods are ready by then."""
    start: float = 180.0
    """For processes to start, and to import torch from a cold disk."""
    answer: float = 60.0
    """For the answer of a started process, and for all ranks to join the process group."""
    total: float = 480.0
    """For all stages before the training."""


@dataclass(frozen=True)
class Network:
    """The measurements of the stage network."""

    facts: tuple[NetworkFacts, ...]
    """The head, then the pods that answered."""
    processes: int
    """Number of processes that answered."""
    unanswered: dict[str, str]
    """Pod -> the reason why a process did not answer."""
    skews: dict[str, float]
    """Pod -> seconds by which its clock is ahead of the head's."""
    connections: int
    """Number of connections between pods."""
    broken: tuple[BrokenLink, ...] = ()
    backend: str = "gloo"
    """nccl or gloo."""
    reductions: tuple[Reduction, ...] = ()
    """One for each rank. Empty: the image has no torch."""
    pairs: tuple[Pair, ...] = ()
    """Pairs of pods, measured if the all-reduce is slower than its limit."""


@dataclass(frozen=True)
class Services:
    """The measurements of the stage services."""

    facts: tuple[ServiceFacts, ...]
    """The head, then the pods."""
    devices: tuple[Device, ...]
    """One for each process. Empty: the image has no torch."""
    nodes: tuple[RayNode, ...]
    """The workers that have joined Ray."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """Pod -> the reason why its process did not answer."""


@dataclass(frozen=True)
class Data:
    """The measurements of the stage data."""

    facts: tuple[DataFacts, ...]
    """The head, then the pods."""
    folders: tuple[Folder, ...]
    """The run directory in the head, then in the pods."""
    has_chat_template: bool | None
    """None: unknown."""
    template_problem: TemplateProblem | None = None
    """None: the template works, or cannot be read or tested."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """Pod -> the reason why its process did not answer, such as a volume that hangs."""
    hub_problems: tuple[HubProblem, ...] = ()
    """Repositories of the hub that the head cannot read."""
    object_problems: tuple[ObjectProblem, ...] = ()
    """Models and data in a bucket that the head cannot read."""
    buckets: tuple[BucketFacts, ...] = ()
    """The bucket of the run in the pods that use it."""


@dataclass
class Stopwatch:
    """Name of a measurement -> its duration in seconds."""

    seconds: dict[str, float] = field(default_factory=dict)
    begin: Callable[[str], None] = print
    """Called with the name of each measurement."""

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Measure the duration of the block."""
        self.begin(name)
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - start


def measure_network(
    own: Process,
    members: Sequence[Member],
    timeouts: Timeouts,
    stopwatch: Stopwatch,
    compute_limit: Callable[[Network], float | None],
) -> Network:
    """Measure the network. `compute_limit` returns the minimum bus bandwidth, which starts the search in pairs."""
    with stopwatch.measure("pods"):
        answers = call(members, timeouts.start, Process.measure_network)
    started = [member for index, member in enumerate(members) if not isinstance(answers[index], NoAnswer)]
    leaders = [member for member in started if member.is_leader]
    facts = [each for index, each in enumerate(answers) if members[index].is_leader and not isinstance(each, NoAnswer)]
    with stopwatch.measure("clocks"):
        skews = {member.pod: skew for member in leaders for skew in [_measure_skew(member, timeouts.answer)] if skew}
    with stopwatch.measure("connections"):
        connections, broken = _connect(leaders, timeouts.answer)
    with stopwatch.measure("all-reduce"):
        backend, reductions = _reduce(started, timeouts)
    network = Network(
        facts=(own.measure_network(), *facts),
        processes=len(started),
        unanswered=_find_unanswered(members, answers),
        skews=skews,
        connections=connections,
        broken=tuple(broken),
        backend=backend,
        reductions=tuple(reductions),
    )
    limit = compute_limit(network)
    if limit is None or not is_slower(network.reductions, limit):
        return network
    with stopwatch.measure("all-reduces of pairs"):
        return replace(network, pairs=tuple(_reduce_pairs(leaders, timeouts)))


def measure_services(
    own: Process, members: Sequence[Member], nodes: Sequence[RayNode], timeouts: Timeouts, stopwatch: Stopwatch
) -> Services:
    """Measure limits, programs and devices."""
    leaders = [member for member in members if member.is_leader]
    with stopwatch.measure("services"):
        answers = call(leaders, timeouts.answer, Process.measure_services)
    with stopwatch.measure("devices"):
        devices = call(members, timeouts.start, Process.measure_device)
    return Services(
        facts=(own.measure_services(), *(each for each in answers if not isinstance(each, NoAnswer))),
        devices=tuple(each for each in devices if each is not None and not isinstance(each, NoAnswer)),
        nodes=tuple(nodes),
        unanswered={**_find_unanswered(leaders, answers), **_find_unanswered(members, devices)},
    )


def measure_data(
    expected: Expected, own: Process, members: Sequence[Member], timeouts: Timeouts, stopwatch: Stopwatch
) -> Data:
    """Measure volumes, files and caches."""
    leaders = [member for member in members if member.is_leader]
    with stopwatch.measure("files"):
        answers = call(leaders, timeouts.answer, Process.measure_data)
    with stopwatch.measure("run directory"):
        folders = _measure_folders(own, leaders, timeouts.answer)
    with stopwatch.measure("hub"):
        hub_problems = find_hub_problems(expected.repositories, os.environ)
    with stopwatch.measure("objects"):
        object_problems = tuple(find_object_problems(expected.objects, expected.endpoint, os.environ))
    with stopwatch.measure("bucket"):
        buckets = [own.measure_bucket(), *call(leaders, timeouts.answer, Process.measure_bucket)]
    template_of = expected.chat_template_of
    jinja2 = import_jinja()
    template = expected.chat_template or (read_template(template_of) if template_of else None)
    return Data(
        facts=(own.measure_data(), *(each for each in answers if not isinstance(each, NoAnswer))),
        folders=tuple(folders),
        has_chat_template=template is not None if template_of or template else None,
        template_problem=find_problem(template, jinja2) if template and jinja2 else None,
        unanswered={**_find_unanswered(leaders, answers), **_find_unanswered(leaders, buckets[1:])},
        hub_problems=tuple(hub_problems),
        object_problems=object_problems,
        buckets=tuple(each for each in buckets if each is not None and not isinstance(each, NoAnswer)),
    )


def is_slower(reductions: Sequence[Reduction], limit: float) -> bool:
    """Whether all ranks reduced correctly, and the slowest one had less than this bus bandwidth."""
    if len(reductions) < 2 or any(each.error is not None or each.wrong for each in reductions):
        return False
    slowest = max(reductions, key=lambda each: each.seconds)
    return compute_bus_bandwidth(slowest.bytes, slowest.seconds, len(reductions)) < limit


def _find_unanswered(members: Sequence[Member], answers: Sequence[object]) -> dict[str, str]:
    return {members[index].pod: each.reason for index, each in enumerate(answers) if isinstance(each, NoAnswer)}


def _measure_skew(member: Member, timeout_s: float) -> float | None:
    """Return the seconds by which the member's clock is ahead, corrected by half the duration of the call."""
    before = time.time()
    (clock,) = call([member], timeout_s, Process.clock)
    return None if isinstance(clock, NoAnswer) else clock - (before + time.time()) / 2


def _connect(leaders: Sequence[Member], timeout_s: float) -> tuple[int, list[BrokenLink]]:
    """Connect all pods with each other. Return the number of connections and the failed ones."""
    listeners = [each for each in call(leaders, timeout_s, Process.listen) if not isinstance(each, NoAnswer)]
    peers = [[each for each in listeners if each.pod != member.pod] for member in leaders]
    answers = call_each(leaders, timeout_s, Process.find_broken_links, [(each,) for each in peers])
    broken = [link for answer in answers if not isinstance(answer, NoAnswer) for link in answer]
    return sum(map(len, peers)), broken


def _reduce(members: Sequence[Member], timeouts: Timeouts) -> tuple[str, list[Reduction]]:
    """Reduce over the members with accelerators, or over all if none has. Return the backend and the results."""
    group = [member for member in members if member.devices] or list(members)
    backend = "nccl" if group and group[0].devices else "gloo"
    imported = call(group, timeouts.start, Process.import_torch)
    if False in imported or not group:
        return backend, []
    late = [
        Reduction(group[rank].pod, error=answer.reason, is_unresponsive=True)
        for rank, answer in enumerate(imported)
        if isinstance(answer, NoAnswer)
    ]
    return backend, late or _reduce_group(group, backend, timeouts)


def _reduce_group(group: Sequence[Member], backend: str, timeouts: Timeouts) -> list[Reduction]:
    (rendezvous,) = call(group[:1], timeouts.answer, Process.listen_for_ranks)
    if isinstance(rendezvous, NoAnswer):
        return [Reduction(group[0].pod, error=rendezvous.reason)]
    address, port = rendezvous
    arguments = [(Rendezvous(address, port, len(group), backend, timeouts.answer), rank) for rank in range(len(group))]
    answers = call_each(group, JOIN_TIMEOUTS * timeouts.answer, Process.all_reduce, arguments)
    return [
        Reduction(group[rank].pod, error=answer.reason, is_unresponsive=answer.is_unresponsive)
        if isinstance(answer, NoAnswer)
        else answer
        for rank, answer in enumerate(answers)
    ]


def _reduce_pairs(leaders: Sequence[Member], timeouts: Timeouts) -> list[Pair]:
    """Reduce in pairs of pods, with one process of each."""
    backend = "nccl" if leaders[0].devices else "gloo"
    by_pod = {member.pod: member for member in leaders}
    found = []
    for pairs in choose_rounds(list(by_pod)):
        group = [by_pod[pod] for pair in pairs for pod in pair]
        firsts = [by_pod[first] for first, _ in pairs]
        ports = call(firsts, timeouts.answer, Process.listen_for_ranks)
        arguments: list[tuple[Any, ...]] = []
        for port in ports:
            address, number = ("", 0) if isinstance(port, NoAnswer) else port
            arguments += [(Rendezvous(address, number, 2, backend, timeouts.answer), rank) for rank in (0, 1)]
        answers = call_each(group, JOIN_TIMEOUTS * timeouts.answer, Process.all_reduce, arguments)
        for index, pair in enumerate(pairs):
            both = [each for each in answers[2 * index : 2 * index + 2] if not isinstance(each, NoAnswer)]
            slowest = max((each.seconds for each in both), default=0.0)
            bandwidth = compute_bus_bandwidth(both[0].bytes, slowest, 2) if len(both) == 2 else 0.0
            found.append(Pair(pair, bandwidth))
    return found


def _measure_folders(own: Process, leaders: Sequence[Member], timeout_s: float) -> list[Folder]:
    """Write and find files in the run directory, in this pod and all others."""
    token = uuid4().hex[:8]
    own_error = own.write_file(token)
    errors = [_get_error(answer) for answer in call(leaders, timeout_s, Process.write_file, token)]
    names = [own.pod, *(member.pod for member in leaders)]
    written = [name for index, name in enumerate(names) if [own_error, *errors][index] is None]
    try:
        arguments = [(token, error, written) for error in errors]
        answers = call_each(leaders, timeout_s, Process.find_files, arguments)
        found = [answer for answer in answers if not isinstance(answer, NoAnswer)]
        return [own.find_files(token, own_error, written), *found]
    finally:
        own.remove_folder(token)
        # Without a shared volume, each pod has its own run directory.
        call(leaders, timeout_s, Process.remove_folder, token)


def _get_error(answer: str | NoAnswer | None) -> str | None:
    return answer.reason if isinstance(answer, NoAnswer) else answer
