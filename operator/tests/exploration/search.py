"""Exhaustive search: every order of transitions from a world, within its numbers of disturbances and faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from exploration import environment
from exploration.api_server import WATCHED
from exploration.invariants import (
    Transition,
    Violation,
    check,
    is_lost_pod_recorded,
    is_not_scaled,
    is_settled,
    stays_on_cordoned_node,
)
from exploration.process import Crash, Fault
from exploration.world import World

from rlt_core.kubernetes.client import ApiError

MAX_RECONCILIATIONS = 40
"""A job needs fewer reconciliations to settle after the last disturbance."""
MAX_WRITING = 5
"""Maximum number of reconciliations in succession that write in an unchanged environment."""
LONG_S = 300
"""More than every delay of the operator, and less than the deadlines of the job."""


def list_transitions(world: World) -> Iterator[Transition]:
    """All transitions of a world."""
    if not world.process.woken:
        yield from _list_environment(world)
    for resource in WATCHED:
        if world.list_pending(resource):
            yield _deliver(world, resource)
    after = world.fork()
    if after.poll():
        yield Transition("the operator asks the head", world, after)
    process = world.process
    if process.woken or (process.timer is not None and process.idle_at != world.server.version):
        yield from _list_reconciliations(world)
    if world.faults:
        for resource in WATCHED:
            if world.list_pending(resource):
                after = world.fork()
                after.faults -= 1
                after.server.interrupt_watch(resource)
                yield Transition(f"the watch of {resource} loses events", world, after)
        after = world.fork()
        after.faults -= 1
        yield Transition("the operator restarts", world, after, tuple(after.restart().writes))
    if world.upgrades:
        yield from _list_upgrades(world)


def _list_environment(world: World) -> Iterator[Transition]:
    for happen in _list_possible(world):
        after = world.fork()
        if _let(happen, after):
            yield Transition(happen.__name__, world, after)


def _list_possible(world: World) -> tuple[environment.Happening, ...]:
    free = (*environment.EXPECTED, environment.program_succeeds, environment.user_resumes_job)
    disturbances = environment.DISTURBANCES if world.disturbances else ()
    breakages = environment.BREAKAGES if world.breakages else ()
    rivals = environment.RIVALS if world.rivals else ()
    losses = environment.LOSSES if world.losses else ()
    scalings = environment.SCALINGS if world.scalings else ()
    failures = environment.FAILURES if world.failures else ()
    deletions = environment.DELETIONS if world.deletions else ()
    return (*free, *disturbances, *breakages, *rivals, *losses, *scalings, *failures, *deletions)


def _let(happen: environment.Happening, world: World) -> bool:
    """Let something happen. Returns whether it changed anything."""
    disturbs = happen in environment.DISTURBANCES
    world.disturbances -= disturbs
    is_loss = happen in environment.LOSSES
    has_minimum = world.has_minimum or world.is_elastic
    ends_program = happen in (*environment.FAILURES, *environment.DELETIONS)
    world.disturbed |= disturbs or ends_program or (is_loss and has_minimum)
    world.scalings -= happen in environment.SCALINGS
    world.failures -= happen in environment.FAILURES
    world.deletions -= happen in environment.DELETIONS
    world.breakages -= happen in environment.BREAKAGES
    world.rivals -= happen in environment.RIVALS
    world.losses -= is_loss
    return happen(world)


def _list_reconciliations(world: World) -> Iterator[Transition]:
    """A reconciliation without a fault, and with each fault at each of its requests."""
    after = world.fork()
    carried = after.reconcile()
    yield Transition("reconcile", world, after, tuple(carried.writes))
    if not world.faults:
        return
    for at, (method, path) in enumerate(carried.writes):
        what = f"{method} {'/'.join(path.split('/')[-2:])}"
        yield _reconcile(world, f"reconcile, crash after {what}", Fault(at, after=_crash))
        yield _reconcile(world, f"reconcile, no response to {what}", Fault(at, after=_lose_response))
        yield _reconcile(world, f"reconcile, {what} fails", Fault(at, before=_lose_response))
    for happen in _list_possible(world):
        if happen(world.fork()) or happen(after.fork()):  # else it would be the reconciliation without a fault
            for at in range(len(carried.writes)):
                yield _reconcile_while(world, happen, f"before write {at}", at)
            for at in range(carried.requests):
                yield _reconcile_while(world, happen, f"before the response to request {at}", at, delivered=True)


def _reconcile(world: World, name: str, fault: Fault | None = None) -> Transition:
    after = world.fork()
    if fault:
        after.faults -= 1
    return Transition(name, world, after, tuple(after.reconcile(fault).writes))


def _reconcile_while(
    world: World, happen: environment.Happening, when: str, at: int, *, delivered: bool = False
) -> Transition:
    """A reconciliation during which something happens: before a write, or before a response, which watches overtake."""
    after = world.fork()
    after.faults -= 1

    def interrupt() -> None:
        _let(happen, after)
        for resource in WATCHED if delivered else ():
            after.deliver(resource)

    fault = Fault(at, after=interrupt, of_all=True) if delivered else Fault(at, before=interrupt)
    writes = tuple(after.reconcile(fault).writes)
    return Transition(f"reconcile, {happen.__name__} {when}", world, after, writes, interrupted=True)


def _list_upgrades(world: World) -> Iterator[Transition]:
    """A replica of another version leads. No watch of it, all, or one of them are behind the one before."""
    new = [resource for resource in WATCHED if world.server.list_new(resource)]
    for behind in dict.fromkeys([(), tuple(new), *((resource,) for resource in new)]):
        after = world.fork()
        after.upgrades -= 1
        name = f"another version of the operator leads{', behind in ' * bool(behind)}{', '.join(behind)}"
        yield Transition(name, world, after, tuple(after.upgrade(behind).writes))


def _deliver(world: World, resource: str) -> Transition:
    after = world.fork()
    after.deliver(resource)
    return Transition(f"the watch of {resource} delivers", world, after)


def _crash() -> None:
    raise Crash


def _lose_response() -> None:
    raise ApiError(0, "timeout")


@dataclass
class Search:
    """Breadth-first, so that the path to a violation is a shortest one."""

    max_depth: int = 10**9
    """Maximum number of transitions from the start."""
    found: dict[int, tuple[int, str] | None] = field(default_factory=dict)
    """State -> the state before it and the transition to it."""
    settled: set[State] = field(default_factory=set)
    """States after which a job settles."""
    transitions: int = 0

    def run(self, *starts: World) -> None:
        """Explore all states. Raises Violation with the path to it."""
        queue = deque((0, start.describe(), start) for start in starts)
        self.found |= {key: None for _, key, _ in queue}
        while queue:
            depth, key, world = queue.popleft()
            if depth == self.max_depth:
                return
            for step in list_transitions(world):
                self.transitions += 1
                after = step.after.describe()
                try:
                    check(step)
                    if after not in self.found:
                        self.found[after] = (key, step.name)
                        self._settle(step.after)
                        queue.append((depth + 1, after, step.after))
                except Violation as violation:
                    raise Violation(f"{violation}\n{self.describe_path(key)}\n- {step.name}") from None

    def describe_path(self, key: int) -> str:
        """The transitions from the start to a state."""
        path: list[str] = []
        before = self.found[key]
        while before:
            key, name = before
            path.append(f"- {name}")
            before = self.found[key]
        return "\n".join(reversed(path))

    def _settle(self, world: World) -> None:
        world = world.fork()
        world.disturbances = world.faults = world.breakages = world.upgrades = world.rivals = world.losses = 0
        world.failures = world.scalings = 0
        self.settled.update(settle(world, self.settled))


State = tuple[int, int | None]
"""A description of a world, and the seconds to the next requeue."""


def settle(world: World, known: set[State] | None = None) -> list[State]:
    """Let everything happen that is expected, until the world repeats itself. Returns the states on the way.

    Raises Violation if the job is not settled then. Stops early at a state in `known`.
    """
    visited: list[State] = []
    path: list[str] = []
    reconciliations = writing = timers = 0
    while (state := _describe(world)) not in visited and timers < 4:
        if known and state in known:
            return visited
        visited.append(state)
        step = advance(world, jump=timers == 2)
        world = step.after
        name = step.name
        path.append(name)
        frozen = step.by_operator or name.startswith("the watch")
        timers = timers + 1 if name == "requeue" else timers if frozen else 0
        writing = writing + bool(step.writes) if frozen and name != "requeue" else 0
        reconciliations += step.by_operator
        try:
            check(step)
            is_end = name == environment.program_succeeds.__name__
            problems = (stays_on_cordoned_node, is_not_scaled, is_lost_pod_recorded)
            if is_end and (problem := next(filter(None, (find(step.before) for find in problems)), None)):
                raise Violation(problem)
            if writing > MAX_WRITING:
                raise Violation(f"applying_again_changes_nothing: {writing} reconciliations in succession write")
            if reconciliations > MAX_RECONCILIATIONS:
                raise Violation(f"job_converges: not after {reconciliations} reconciliations")
        except Violation as violation:
            raise Violation(f"{violation}\nwhile the job settles: {', '.join(path)}") from None
    _check_that_applying_again_changes_nothing(world)
    if problem := is_settled(world):
        raise Violation(f"{problem}\nafter the job settled: {', '.join(path)}")
    return visited


def _check_that_applying_again_changes_nothing(world: World) -> None:
    again = world.fork()
    again.reconcile()
    if writes := again.reconcile().writes:
        raise Violation(f"applying_again_changes_nothing: the second of two reconciliations has written: {writes}")


def _describe(world: World) -> State:
    timer = world.process.timer
    return world.describe(), None if timer is None else max(0, round(timer - world.server.seconds))


def _is_due(world: World) -> bool:
    """Whether a reconciliation asked for another one at once, because it saw a newer object than the watch's."""
    return world.process.timer is not None and world.process.timer <= world.server.seconds


def advance_until(world: World, condition: Callable[[World], bool]) -> World:
    """Let happen what is expected, until the condition holds."""
    while not condition(world):
        world = advance(world).after
    return world


def advance(world: World, *, jump: bool = False) -> Transition:
    """The next expected transition. With `jump`, the clock passes every delay before the next requeue."""
    for resource in WATCHED:
        if world.list_pending(resource):
            return _deliver(world, resource)
    if _is_due(world):
        return _reconcile(world, "reconcile")
    asked = world.fork()
    if asked.poll():
        return Transition("the operator asks the head", world, asked)
    if world.process.woken:
        return _reconcile(world, "reconcile")
    after = world.fork()
    for happen in (*environment.EXPECTED, environment.program_succeeds):
        if happen(after):
            return Transition(happen.__name__, world, after)
    if world.process.timer is None:
        return Transition("nothing", world, world)
    after.server.seconds = max(after.server.seconds + (LONG_S if jump else 0), world.process.timer)
    return _reconcile(after, "requeue")
