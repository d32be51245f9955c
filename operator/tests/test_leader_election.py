"""What a replica decides from the content of the Lease, and how long an observed Lease blocks it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rlt_operator import leader_election as election
from rlt_operator.leader_election import SeenLease, build_released_spec, build_spec

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 3, 4, 7, tzinfo=UTC)
FIRST = build_spec({}, "a", NOW)


def test_the_first_holder_starts_to_count() -> None:
    assert FIRST == {
        "holderIdentity": "a",
        "leaseDurationSeconds": election.LEASE_DURATION_S,
        "acquireTime": "2026-01-02T03:04:05.678901Z",
        "renewTime": "2026-01-02T03:04:05.678901Z",
        "leaseTransitions": 0,
    }


def test_a_renewal_keeps_acquire_time_and_transitions() -> None:
    assert build_spec(FIRST, "a", LATER) == {**FIRST, "renewTime": "2026-01-02T03:04:07.000000Z"}


@pytest.mark.parametrize("previous", [FIRST, build_released_spec(FIRST, LATER)])
def test_another_holder_counts_a_transition(previous: dict[str, object]) -> None:
    taken = build_spec(previous, "b", LATER)
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("b", 1)
    assert taken["acquireTime"] == taken["renewTime"] == "2026-01-02T03:04:07.000000Z"


def test_a_lease_blocks_others_for_its_duration_since_it_was_seen() -> None:
    """The times in the Lease are from another machine's clock and have no effect."""
    seen = SeenLease({**FIRST, "leaseDurationSeconds": 10, "renewTime": "1999-01-01T00:00:00.000000Z"}, at=100.0)
    assert seen.blocks("b", 109.9)
    assert not seen.blocks("b", 110.0)
    assert not seen.blocks("a", 100.0)


@pytest.mark.parametrize("spec", [{}, build_released_spec(FIRST, NOW), {"holderIdentity": ""}])
def test_a_lease_without_a_holder_can_be_acquired(spec: dict[str, object]) -> None:
    assert not SeenLease(spec, at=100.0).blocks("b", 100.0)


def test_a_holder_stops_before_another_replica_can_start() -> None:
    """Two attempts fit into the deadline, and a write that is sent at its end has time until the Lease expires."""
    assert election.REQUEST_TIMEOUT_S + election.RETRY_PERIOD_S < election.RENEW_DEADLINE_S
    assert election.RENEW_DEADLINE_S + election.RETRY_PERIOD_S < election.LEASE_DURATION_S
    takeover_s = election.LEASE_DURATION_S + election.RETRY_PERIOD_S + election.REQUEST_TIMEOUT_S
    assert takeover_s <= 15
