"""The size of /dev/shm, and the jobs that it leaves too little memory."""

from __future__ import annotations

import re

import pytest
from cases import BUILTIN, gpus, merged

from rlt_api.blocks.resources import Resources
from rlt_api.rules.shared_memory import GiB, shared_memory
from rlt_api.validation import validate_job


def test_it_is_the_sum_of_its_parts_or_a_quarter() -> None:
    small = shared_memory(Resources(cpu="1", memory="64Gi"), accelerators=8, parameters=7e9)
    assert small.size == small.needed == small.object_store + 8 * GiB + 2 * GiB
    assert shared_memory(Resources(cpu="1", memory="2Ti"), accelerators=8).size == 512 * GiB
    assert shared_memory(Resources(cpu="1", memory="4Gi")).size == GiB


def test_the_jobs_own_size_is_the_last_word() -> None:
    given = shared_memory(Resources(cpu="1", memory="64Gi", shared_memory="1Gi"), accelerators=8)
    assert (given.size, given.given) == (GiB, True)


@pytest.mark.parametrize("count", [4, 8, 16])
def test_the_least_memory_that_is_advised_is_enough_and_the_least(count: int) -> None:
    def findings(pod: str) -> list[str]:
        found = validate_job("sum", merged(BUILTIN, gpus(count, pod=pod))).findings
        return [finding.fix for finding in found if finding.rule == "shared-memory"]

    (fix,) = findings("4Gi")
    advised = re.search(r"use (\d+)Gi", fix)
    assert advised
    assert not findings(f"{advised[1]}Gi")
    assert findings(f"{int(advised[1]) - 1}Gi")
