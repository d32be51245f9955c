"""The size of /dev/shm, and the rule for jobs whose pods have too little memory for it."""

from __future__ import annotations

import re

import pytest
from job_specs import BUILTIN, gpus, merged

from rlt_api.blocks.resources import Resources
from rlt_api.rules.shared_memory import GiB, size_shared_memory
from rlt_api.validation.validate import validate_job


def test_size_is_the_sum_of_the_parts_or_a_quarter() -> None:
    small = size_shared_memory(Resources(cpu="1", memory="64Gi"), accelerators=8, parameters=7e9)
    assert small.size == small.needed == small.object_store + 8 * GiB + 2 * GiB
    assert size_shared_memory(Resources(cpu="1", memory="2Ti"), accelerators=8).size == 512 * GiB
    assert size_shared_memory(Resources(cpu="1", memory="4Gi")).size == GiB


def test_explicit_size_overrides_the_default() -> None:
    given = size_shared_memory(Resources(cpu="1", memory="64Gi", shared_memory="1Gi"), accelerators=8)
    assert (given.size, given.given) == (GiB, True)


@pytest.mark.parametrize("count", [4, 8, 16])
def test_suggested_memory_is_the_minimum(count: int) -> None:
    def findings(pod: str) -> list[str]:
        found = validate_job("sum", merged(BUILTIN, gpus(count, pod=pod))).findings
        return [finding.fix for finding in found if finding.rule == "shared-memory"]

    (fix,) = findings("4Gi")
    suggested = re.search(r"use (\d+)Gi", fix)
    assert suggested
    assert not findings(f"{suggested[1]}Gi")
    assert findings(f"{int(suggested[1]) - 1}Gi")
