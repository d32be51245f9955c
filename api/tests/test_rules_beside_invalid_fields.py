"""A manifest with an invalid field and a broken rule has both findings in one round, and no finding about a default."""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import BUILTIN, Json, merged

from rlt_api.validation.removed_fields import remove_fields
from rlt_api.validation.validate import validate_job

BROKEN_RULE = {"training.trainBatchSize": 250, "training.ppoMiniBatchSize": 64}


def find_rules(**changes: Any) -> list[str]:
    return [each.rule for each in validate_job("a", merged(BUILTIN, changes)).findings]


@pytest.mark.parametrize(
    "invalid",
    [{"rollout.topP": 2}, {"rollout.topQ": 1}, {"algorithm.klLossCoef": "much"}, {"cluster.workers": 3}],
    ids=lambda each: next(iter(each)),
)
def test_a_broken_rule_is_found_beside_an_invalid_field(invalid: Json) -> None:
    first, *others = find_rules(**BROKEN_RULE, **invalid)
    assert first == "schema"
    assert "batch-divisibility" in others or "cluster.workers" in invalid


def test_a_rule_that_reads_the_invalid_field_or_a_default_is_not_applied() -> None:
    assert set(find_rules(**{"training.trainBatchSize": "250", "training.ppoMiniBatchSize": 64})) == {"schema"}
    misspelled = {"training.trainBatchSize": None, "training.trainBatchSise": 512, "training.ppoMiniBatchSize": 512}
    assert set(find_rules(**misspelled)) == {"schema"}


def test_a_valid_spec_beside_an_invalid_field_adds_nothing() -> None:
    assert find_rules(**{"rollout.topP": 2}) == ["schema"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.a.b", {"a": {}, "c": [{"d": 1}]}),
        ("spec.c[0].d", {"a": {"b": 1}, "c": [{}]}),
        ("spec.c[0]", None),
        ("spec.c[1].d", None),
        ("spec.x", None),
        ("spec.a[example.com/b]", None),
        ("spec", None),
    ],
)
def test_fields_are_removed_by_their_paths(path: str, expected: Json | None) -> None:
    spec = {"a": {"b": 1}, "c": [{"d": 1}]}
    assert remove_fields(spec, [path]) == expected
    assert spec == {"a": {"b": 1}, "c": [{"d": 1}]}
