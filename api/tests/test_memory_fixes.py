"""The fixes of memory findings, for published models on GPUs of 24 to 192 GB: each one leaves a job with room."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from job_specs import BUILTIN, gpus, merged
from test_edits import apply

from rlt_api.findings.finding import Edit, Finding
from rlt_api.rules.device_memory import list_moments
from rlt_api.rules.engine_memory import CACHE_SHARE, cache_share, read_trained
from rlt_api.rules.memory_parts import GIB
from rlt_api.spec.runtime import resolve
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

MODELS = ("Qwen2.5-7B-Instruct", "Qwen3-30B-A3B", "Qwen2.5-32B-Instruct", "Qwen2.5-72B-Instruct")
MEMORIES = (24, 80, 141, 192)
NODES = (1, 4, 16)
SHARES = (0.3, 0.5, 0.7, 0.9)
RULES = ("engine-memory", "accelerator-memory")
ROUNDING = 0.02
"""A share that is printed with two digits."""


def build(model: str, memory: int, nodes: int, share: float) -> dict[str, Any]:
    batches = {"totalSteps": 10, "trainBatchSize": 128, "ppoMiniBatchSize": 128}
    change = {
        "model": {"path": f"Qwen/{model}", "fromSeed": None},
        "training": batches,
        "rollout": {"responsesPerPrompt": 8, "gpuMemoryUtilization": share},
        **gpus(8, nodes, memory=f"{memory}Gi"),
    }
    return resolve(merged(BUILTIN, change), None)


def list_fixes() -> Iterator[tuple[dict[str, Any], Finding, Edit]]:
    for each in product(MODELS, MEMORIES, NODES, SHARES):
        spec = build(*each)
        for finding in validate_job("job", spec).findings:
            if finding.rule in RULES:
                yield from ((spec, finding, edit) for edit in finding.edits)


FIXES = list(list_fixes())


def test_the_grid_has_fixes_of_both_rules() -> None:
    assert {finding.rule for _, finding, _ in FIXES} == {*RULES}


@pytest.mark.parametrize(("spec", "finding", "edit"), FIXES, ids=lambda each: getattr(each, "value", None) or "")
def test_a_fix_leaves_room_for_the_part_that_it_is_for(spec: dict[str, Any], finding: Finding, edit: Edit) -> None:
    """The fix of an engine leaves a KV cache, also if the trainer then needs its own fix. The fixes of a trainer, one
    for each phase that does not fit, lead to a sum that fits, or to more accelerators."""
    messages = {finding.message}
    for _ in range(3):
        spec, _ = apply(spec, "job", edit)
        validated = validate_job("job", spec)
        assert validated.spec
        found = [each for each in validated.findings if each.rule in RULES]
        assert messages.isdisjoint(each.message for each in found), edit
        if finding.rule == "engine-memory":
            assert finding.rule not in {each.rule for each in found}
            assert (cache_share(validated.spec) or 0) >= CACHE_SHARE - ROUNDING
            return
        if not found or not found[0].edits:
            break
        messages.add(found[0].message)
        edit = found[0].edits[0]
    if not found:
        memory = float(str(spec["cluster"]["workers"][0]["accelerator"]["memory"]).removesuffix("Gi")) * GIB
        assert validated.spec
        trained = read_trained(validated.spec)
        assert trained
        assert all(moment.bytes <= memory for moment in list_moments(validated.spec, *trained, memory))
        assert not [each for each in find_warnings(validated.spec) if "KV cache" in each]
    else:
        assert "more accelerators" in found[0].fix
