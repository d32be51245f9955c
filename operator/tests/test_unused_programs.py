"""Which ConfigMaps with programs are deleted."""

from __future__ import annotations

from rlt_core.children.programs import name_programs
from rlt_operator.reconcile.unused_programs import find_unused

CURRENT = name_programs()
OLD = "rlt-programs-000000000000"


def test_the_programs_of_a_namespace_without_jobs_are_unused() -> None:
    assert find_unused([("a", CURRENT), ("b", CURRENT)], set(), {"b"}) == [("a", CURRENT)]


def test_programs_of_another_version_stay_until_no_cluster_mounts_them() -> None:
    found = [("a", OLD), ("b", OLD)]
    assert find_unused(found, {("a", OLD), ("b", CURRENT)}, {"a", "b"}) == [("b", OLD)]
