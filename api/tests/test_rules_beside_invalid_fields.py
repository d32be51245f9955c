"""A manifest with an invalid field and a broken rule has both findings in one round, and no finding about a default."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from cases import CASES, Case
from hypothesis import given, settings
from hypothesis import strategies as st
from job_specs import BUILTIN, Json, gpus, merged
from random_jobs import random_job

from rlt_api.findings.finding import Finding
from rlt_api.schema.crd import GROUP, KIND, VERSION
from rlt_api.validation.validate import validate_job, validate_manifest

BROKEN_RULE = {"training.trainBatchSize": 250, "training.ppoMiniBatchSize": 64}
READ_BY_FEW = {"ttlSecondsAfterFinished": "1h", "managedBy": 3, "zzz": 1}
"""Invalid values of fields that almost no rule reads."""
RUNTIME: Json = {
    "images": {"nvidia": "registry.example/trainer:cuda"},
    "nodePools": [
        {
            "name": "a",
            "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8, "memory": "80Gi"},
            "resources": {"cpu": "32", "memory": "512Gi"},
        }
    ],
    "defaults": {"model": {"fromSeed": {}}, "data": {"maxPromptLength": 1000}, "rollout": {"topP": 0.9}},
}
UNREAD = ("schema", "size", "json")
"""Rules that come before the others."""
REPLACEMENTS: tuple[Any, ...] = ("8", 8.5, [[]], True, -1, 7)


def find_rules(**changes: Any) -> list[str]:
    return [each.rule for each in validate_job("a", merged(BUILTIN, changes)).findings]


@pytest.mark.parametrize(
    "invalid",
    [{"rollout.topP": 2}, {"rollout.topQ": 1}, {"algorithm.klLossCoef": "much"}, {"cluster.env": [{"value": "a"}]}],
    ids=lambda each: next(iter(each)),
)
def test_a_broken_rule_is_found_beside_an_invalid_field(invalid: Json) -> None:
    first, *others = find_rules(**BROKEN_RULE, **invalid)
    assert first == "schema"
    assert "batch-divisibility" in others


@pytest.mark.parametrize("case", [each for each in CASES if each.rule not in UNREAD], ids=lambda each: each.id)
def test_each_rule_is_applied_beside_an_invalid_field_that_it_does_not_read(case: Case) -> None:
    expected = {str(each) for each in validate_job(case.name, case.spec).findings}
    usable = [each for each in READ_BY_FEW if each not in case.spec]
    field = usable[CASES.index(case) % len(usable)]
    invalid = merged(case.spec, {field: READ_BY_FEW[field]})
    found = {str(each): each.field for each in validate_job(case.name, invalid).findings}
    assert f"spec.{field}" in found.values()
    assert found.keys() >= expected


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), with_runtime=st.booleans())
def test_what_is_found_beside_an_invalid_field_holds_whatever_its_value(seed: int, with_runtime: bool) -> None:
    random = Random(seed)
    spec = random_job(random)
    if "cluster" in spec and random.random() < 0.5:
        spec = copy.deepcopy(dict(merged(spec, gpus(8))))
    runtime = RUNTIME if with_runtime else None
    valid = validate_job("a", spec, runtime)
    if valid.spec is None:
        return
    block, key = random.choice(list(walk_values(spec)))
    if isinstance(block, dict) and random.random() < 0.4:
        block[f"{key}x"] = block.pop(key)
    else:
        block[key] = random.choice(REPLACEMENTS)
    found = validate_job("a", spec, runtime)
    if any(each.rule == "schema" for each in found.findings):
        assert {show(each) for each in found.findings if each.rule != "schema"} <= {
            show(each) for each in valid.findings
        }


def show(finding: Finding) -> tuple[str, str, str]:
    return finding.rule, finding.field, finding.message


def walk_values(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each object and list with each of its keys and indexes."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from walk_values(value[key])


def test_a_rule_that_reads_the_invalid_field_is_not_applied() -> None:
    assert set(find_rules(**{"training.trainBatchSize": "250", "training.ppoMiniBatchSize": 64})) == {"schema"}
    misspelled = {"training.trainBatchSize": None, "training.trainBatchSise": 512, "training.ppoMiniBatchSize": 512}
    assert set(find_rules(**misspelled)) == {"schema"}
    for unknown in ({"model": {"pathx": "s3://models/q"}}, {"data": {"presetx": "arithmetic"}}, {"evaluation": 3}):
        secret = {"storage.secretName": "s3"}
        assert set(find_rules(**unknown, **secret)) == {"schema"}, unknown


@pytest.mark.parametrize(
    "invalid",
    [{"rollout.topP": 2}, {"data.preset": "gms8k"}, {"rewards": [{"name": 3}]}, {"model.fromSeed": 3}],
    ids=lambda each: next(iter(each)),
)
def test_a_valid_spec_beside_an_invalid_field_adds_nothing(invalid: Json) -> None:
    assert find_rules(**invalid) == ["schema"]


def test_an_unknown_type_of_framework_leaves_no_rule() -> None:
    assert find_rules(**{"framework": {"type": "verll", "overrides": ["a=1"]}, **BROKEN_RULE}) == ["schema"]


def test_invalid_metadata_and_a_broken_rule_are_found_in_one_round() -> None:
    job = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"label": {}},
        "spec": merged(BUILTIN, BROKEN_RULE),
    }
    found = validate_manifest(job, {})
    assert [each.field for each in found[:2]] == ["metadata.name", "metadata.label"]
    assert {each.rule for each in found[2:]} == {"batch-divisibility"}
