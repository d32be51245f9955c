"""Random walks: longer than the exhaustive search, with any number of disturbances and faults."""

from __future__ import annotations

from exploration import environment
from exploration.api_server import WATCHED
from exploration.environment import Happening, build_world
from exploration.invariants import Transition, check
from exploration.process import Crash, Fault
from exploration.search import advance, settle
from exploration.world import World
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rlt_core.kubernetes.client import ApiError

HAPPENINGS = (
    *environment.EXPECTED,
    *environment.DISTURBANCES,
    *environment.BREAKAGES,
    environment.program_succeeds,
    environment.user_resumes_job,
)
happenings = st.sampled_from(HAPPENINGS)
errors = st.sampled_from([Crash(), ApiError(0, "timeout"), ApiError(500, "etcd"), ApiError(409, "conflict")])
resources = st.sampled_from(WATCHED)


class JobMachine(RuleBasedStateMachine):
    """One job, its environment and the operator. At the end, the job settles."""

    world: World

    @initialize()
    def start(self) -> None:
        self.world = build_world()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            settle(self.world)

    @rule(steps=st.integers(1, 12))
    def time_goes_on_as_expected(self, steps: int) -> None:
        for _ in range(steps):
            step = advance(self.world)
            check(step)
            self.world = step.after

    @rule(happen=happenings)
    def something_happens(self, happen: Happening) -> None:
        before = self.world.fork()
        self.let(happen)
        check(Transition(happen.__name__, before, self.world))

    @rule(resource=resources, twice=st.booleans())
    def the_watch_delivers(self, resource: str, twice: bool) -> None:
        changes = self.world.server.streams[resource]
        self.world.deliver(resource)
        if twice:
            self.world.server.streams[resource] = changes
            self.world.deliver(resource)

    @rule(resource=resources)
    def the_watch_loses_events(self, resource: str) -> None:
        self.world.server.interrupt_watch(resource)

    @rule()
    def the_head_is_asked(self) -> None:
        self.world.poll()

    @rule()
    def the_operator_restarts(self) -> None:
        self.world.restart()

    @rule(behind=st.sets(resources))
    def another_version_of_the_operator_leads(self, behind: set[str]) -> None:
        before = self.world.fork()
        writes = tuple(self.world.upgrade(sorted(behind)).writes)
        check(Transition("upgrade", before, self.world, writes))

    @rule()
    def the_namespace_is_not_selected_for_a_while(self) -> None:
        before = self.world.fork()
        writes = tuple(self.world.leave_namespace().writes)
        assert writes == (), "the operator writes nothing in a namespace that is not selected"
        check(Transition("leave_namespace", before, self.world, writes))

    @rule()
    def the_operator_reconciles(self) -> None:
        self.reconcile(None)

    @rule(at=st.integers(0, 6), error=errors)
    def a_request_is_not_carried_out(self, at: int, error: BaseException) -> None:
        self.reconcile(Fault(at, before=lambda: _raise(error)))

    @rule(at=st.integers(0, 6), error=errors)
    def a_response_is_lost(self, at: int, error: BaseException) -> None:
        self.reconcile(Fault(at, after=lambda: _raise(error)))

    @rule(at=st.integers(0, 12), happen=happenings, delivered=st.sets(resources))
    def something_happens_meanwhile(self, at: int, happen: Happening, delivered: set[str]) -> None:
        """After a request, before its response arrives. Watches may deliver it earlier."""

        def interrupt() -> None:
            self.let(happen)
            for resource in sorted(delivered):
                self.world.deliver(resource)

        self.reconcile(Fault(at, after=interrupt, of_all=True), interrupted=True)

    def let(self, happen: Happening) -> None:
        self.world.disturbed |= happen in environment.DISTURBANCES
        happen(self.world)

    def reconcile(self, fault: Fault | None, *, interrupted: bool = False) -> None:
        before = self.world.fork()
        writes = tuple(self.world.reconcile(fault).writes)
        name = "reconcile with a fault" if fault else "reconcile"
        check(Transition(name, before, self.world, writes, interrupted))


def _raise(error: BaseException) -> None:
    raise error
