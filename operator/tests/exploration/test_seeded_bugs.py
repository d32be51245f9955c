"""The search finds each seeded bug, by the invariant that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest
from exploration import seeded_bugs as bugs
from exploration.bounds import Bounds
from exploration.fair_slots import RequestBounds
from exploration.invariants import (
    Violation,
    a_cluster_has_a_job,
    a_deadline_applies,
    a_failing_job_is_quarantined,
    a_namespace_stays_within_its_maximum,
    a_pod_disrupts_one_attempt,
    a_removed_pod_is_not_a_disruption,
    an_attempt_had_its_program,
    an_execution_follows_a_recorded_end,
    another_version_changes_no_child,
    at_most_one_live_cluster,
    mounted_programs_stay,
    own_stop_does_not_fail,
    program_ends_before_its_cluster,
    recorded_attempts_stay,
    terminal_is_sticky,
    the_operators_faults_end_no_attempt,
    the_record_is_stored_before_the_cluster_is_deleted,
    too_few_pods_end_the_attempt,
    users_objects_are_untouched,
    what_another_version_recorded_stays,
)
from exploration.lease_election import ElectionBounds
from exploration.simulation import simulation


@dataclass(frozen=True)
class Seeded:
    """A bug, and what finds it."""

    bug: Callable[[], AbstractContextManager[None]]
    broken: str
    """The invariant."""
    bounds: Bounds | RequestBounds | ElectionBounds


RUNNING = ("running",)
NEW = ("new",)
SEEDED = [
    Seeded(
        bugs.a_silent_head_ends_the_wait_for_the_program,
        program_ends_before_its_cluster.__name__,
        Bounds(disturbances=2, depth=3, starts=RUNNING),
    ),
    Seeded(
        bugs.the_program_is_stopped_before_the_status_records_it,
        own_stop_does_not_fail.__name__,
        Bounds(disturbances=1, faults=1, depth=3, starts=RUNNING),
    ),
    Seeded(
        bugs.a_drain_stops_the_program_before_the_status_records_it,
        own_stop_does_not_fail.__name__,
        Bounds(disturbances=1, faults=1, depth=4, starts=RUNNING),
    ),
    Seeded(
        bugs.a_cordoned_node_wakes_no_job,
        "a_cordoned_node_is_left",
        Bounds(disturbances=1, depth=2, starts=RUNNING),
    ),
    Seeded(
        bugs.no_clock_runs_between_a_ready_cluster_and_the_program,
        a_deadline_applies.__name__,
        Bounds(depth=10, starts=NEW),
    ),
    Seeded(
        bugs.a_users_config_map_is_taken_over,
        users_objects_are_untouched.__name__,
        Bounds(disturbances=1, depth=4, starts=NEW),
    ),
    Seeded(bugs.pods_of_others_count_as_the_jobs, "job_converges", Bounds(disturbances=1, depth=4, starts=NEW)),
    Seeded(
        bugs.the_cache_alone_decides,
        at_most_one_live_cluster.__name__,
        Bounds(disturbances=1, depth=4, starts=("starting",)),
    ),
    Seeded(
        bugs.a_lost_rollout_pod_is_never_replaced,
        "a_replaced_pod_is_forgotten",
        Bounds(losses=1, depth=2, starts=RUNNING),
    ),
    Seeded(
        bugs.too_few_rollout_pods_are_not_noticed,
        too_few_pods_end_the_attempt.__name__,
        Bounds(losses=1, has_minimum=True, depth=4, starts=RUNNING),
    ),
    Seeded(
        bugs.the_end_of_a_removed_pod_is_a_disruption,
        a_removed_pod_is_not_a_disruption.__name__,
        Bounds(scalings=1, depth=2, starts=RUNNING),
    ),
    Seeded(
        bugs.the_pods_to_delete_are_not_named,
        a_removed_pod_is_not_a_disruption.__name__,
        Bounds(scalings=1, depth=2, starts=RUNNING),
    ),
    Seeded(
        bugs.the_names_of_deleted_pods_stay,
        "the_pods_are_as_many_as_wanted",
        Bounds(scalings=1, depth=2, starts=RUNNING),
    ),
    Seeded(bugs.a_result_is_not_final, "job_converges", Bounds(depth=10, starts=NEW)),
    Seeded(bugs.a_job_ends_again, terminal_is_sticky.__name__, Bounds(disturbances=1, depth=3, starts=("ended",))),
    Seeded(
        bugs.a_missing_answer_is_a_lost_head,
        the_operators_faults_end_no_attempt.__name__,
        Bounds(faults=1, depth=3, starts=RUNNING),
    ),
    Seeded(
        bugs.the_cluster_is_deleted_without_its_record,
        the_record_is_stored_before_the_cluster_is_deleted.__name__,
        Bounds(faults=1, depth=3, starts=("ended",)),
    ),
    Seeded(bugs.a_finalizer_stays, "deletion_never_wedges", Bounds(disturbances=1, depth=4)),
    Seeded(bugs.the_message_is_always_new, "applying_again_changes_nothing", Bounds(depth=10, starts=NEW)),
    Seeded(
        bugs.a_response_restores_a_deleted_object,
        "job_converges",
        Bounds(disturbances=1, faults=1, depth=2, starts=NEW),
    ),
    Seeded(
        bugs.a_read_removes_a_newer_object,
        "job_converges",
        Bounds(disturbances=2, faults=1, depth=2, starts=("ended",)),
    ),
    Seeded(
        bugs.the_programs_of_another_version_are_deleted,
        mounted_programs_stay.__name__,
        Bounds(upgrades=1, depth=4, starts=NEW),
    ),
    Seeded(
        bugs.an_upgrade_writes_the_config_map_again,
        another_version_changes_no_child.__name__,
        Bounds(upgrades=1, depth=4, starts=NEW),
    ),
    Seeded(
        bugs.a_rollback_loses_what_the_newer_version_recorded,
        what_another_version_recorded_stays.__name__,
        Bounds(disturbances=1, upgrades=1, newer=True, depth=4, starts=RUNNING),
    ),
    Seeded(
        bugs.the_report_of_a_failure_ends_its_delay,
        "applying_again_changes_nothing",
        Bounds(breakages=1, depth=3, starts=RUNNING),
    ),
    Seeded(
        bugs.a_repaired_job_stays_in_quarantine,
        a_failing_job_is_quarantined.__name__,
        Bounds(breakages=1, depth=3, starts=RUNNING),
    ),
    Seeded(
        bugs.a_job_that_blocks_is_not_delayed,
        a_failing_job_is_quarantined.__name__,
        Bounds(breakages=1, depth=3, starts=RUNNING),
    ),
    Seeded(
        bugs.the_accelerators_of_others_do_not_count,
        a_namespace_stays_within_its_maximum.__name__,
        Bounds(rivals=1, depth=3, starts=NEW),
    ),
    Seeded(
        bugs.a_leader_trusts_its_watch_of_ray_clusters,
        a_namespace_stays_within_its_maximum.__name__,
        Bounds(rivals=1, upgrades=1, depth=4, starts=NEW),
    ),
    Seeded(
        bugs.a_job_that_waits_for_accelerators_is_not_requeued,
        the_operators_faults_end_no_attempt.__name__,
        Bounds(rivals=1, depth=3, starts=NEW),
    ),
    Seeded(
        bugs.the_processes_of_the_earlier_program_are_not_looked_for,
        an_execution_follows_a_recorded_end.__name__,
        Bounds(failures=1, depth=4, starts=RUNNING),
    ),
    Seeded(
        bugs.processes_of_the_earlier_program_count_as_a_failure,
        an_attempt_had_its_program.__name__,
        Bounds(failures=2, starts=RUNNING),
    ),
    Seeded(
        bugs.the_next_program_has_the_id_of_the_earlier_one,
        an_attempt_had_its_program.__name__,
        Bounds(failures=1, depth=8, starts=RUNNING),
    ),
    Seeded(
        bugs.the_next_program_is_submitted_with_the_decision,
        an_execution_follows_a_recorded_end.__name__,
        Bounds(failures=1, depth=4, starts=RUNNING),
    ),
    Seeded(
        bugs.a_replaced_head_gets_the_next_program,
        "job_converges",
        Bounds(failures=1, disturbances=1, depth=5, starts=RUNNING),
    ),
    Seeded(
        bugs.the_pods_of_an_earlier_execution_count,
        a_pod_disrupts_one_attempt.__name__,
        Bounds(failures=1, deletions=1, starts=RUNNING),
    ),
    Seeded(
        bugs.a_ray_cluster_is_one_attempt,
        recorded_attempts_stay.__name__,
        Bounds(failures=2, starts=RUNNING),
    ),
    Seeded(bugs.a_namespace_spends_nothing, "namespaces_take_turns", RequestBounds(depth=4)),
    Seeded(bugs.progress_goes_before_stops, "no_slot_is_idle", RequestBounds(depth=4)),
    Seeded(bugs.a_cancelled_request_keeps_its_slot, "no_slot_is_lost", RequestBounds(depth=4)),
    Seeded(
        bugs.a_job_is_not_read_before_its_cluster_is_created,
        a_cluster_has_a_job.__name__,
        Bounds(disturbances=1, depth=6, starts=("starting",)),
    ),
    Seeded(bugs.a_shard_needs_no_shared_lease, "one_process_acts_on_a_namespace", ElectionBounds(depth=4)),
    Seeded(bugs.all_numbers_of_shards_share_a_lease, "one_process_acts_on_a_namespace", ElectionBounds(depth=5)),
    Seeded(bugs.a_leader_trusts_its_renewal_for_too_long, "one_process_acts_on_a_namespace", ElectionBounds(depth=7)),
]


@pytest.mark.parametrize("seeded", SEEDED, ids=lambda seeded: seeded.bug.__name__)
def test_a_seeded_bug_is_found(seeded: Seeded) -> None:
    with simulation(), seeded.bug(), pytest.raises(Violation, match=f"^{seeded.broken}:") as violation:
        seeded.bounds.explore()
    print(violation.value)
