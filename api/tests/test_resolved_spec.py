"""The resolved spec: complete, independent of later runtimes, and read as it was built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.alias_generators import to_camel

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import list_objects
from rlt_api.validation.resolved_spec import (
    MUTABLE_FIELDS,
    build_resolved_spec,
    dump_resolved_spec,
    get_resolved_spec,
    read_resolved_spec,
)
from rlt_api.validation.validate import validate_job

EXAMPLES = Path(__file__).parents[2] / "examples"
RUNTIMES = {
    runtime["metadata"]["name"]: runtime["spec"]
    for path in (EXAMPLES / "runtimes").glob("*.yaml")
    for runtime in yaml.safe_load_all(path.read_text())
}
JOBS = {path.stem: yaml.safe_load(path.read_text())["spec"] for path in sorted(EXAMPLES.glob("*.yaml"))}
COMMAND: dict[str, Any] = {"framework": {"type": "command", "command": ["a"]}, "cluster": {"image": "i"}}


def runtime_of(job: dict[str, Any]) -> dict[str, Any] | None:
    reference = job.get("runtimeRef")
    return RUNTIMES[reference["name"]] if reference else None


@pytest.mark.parametrize("job", [*JOBS.values(), COMMAND], ids=[*JOBS, "command"])
def test_the_resolved_spec_has_the_values_of_the_merged_spec(job: dict[str, Any]) -> None:
    merged = validate_job("x", job, runtime_of(job)).spec
    resolved = get_resolved_spec(
        {"status": {"resolvedSpec": dump_resolved_spec(build_resolved_spec(job, runtime_of(job)))}}
    )
    read = read_resolved_spec(resolved, job).spec
    assert merged
    assert read
    dependent = {"rewards": read.rewards, "training": read.training, "framework": read.framework}
    if list_objects(merged):  # its paths are the files of the download
        assert not list_objects(read)
        dependent["data"] = read.data
    assert read == merged.model_copy(update=dependent)
    assert (merged.rewards or read.rewards) == read.rewards
    added = [step for step in read.framework.prepare if step not in merged.framework.prepare]
    assert {step.name for step in added} <= {"download-model", "download-data", "download-objects"}
    assert merged.framework.model_copy(update={"prepare": read.framework.prepare}) == read.framework
    small = {"ppo_mini_batch_size": merged.training.ppo_mini_batch_size or read.training.ppo_mini_batch_size}
    assert merged.training.model_copy(update=small) == read.training


def test_every_field_is_written() -> None:
    resolved = build_resolved_spec(COMMAND, None)
    assert set(resolved) == {to_camel(name) for name in RLTrainingJobSpec.model_fields}
    assert resolved["training"]["totalSteps"] is None
    assert resolved["algorithm"]["clipRatio"] == 0.2


def test_defaults_that_depend_on_other_fields_are_written() -> None:
    job = {"data": {"preset": "gsm8k"}, "training": {"trainBatchSize": 48}}
    resolved = build_resolved_spec(job, None)
    assert resolved["rewards"][0]["name"] == "gsm8k"
    assert resolved["training"]["ppoMiniBatchSize"] == 48


def test_a_null_value_is_not_given() -> None:
    assert build_resolved_spec({**COMMAND, "rewards": None}, None) == build_resolved_spec(COMMAND, None)


def test_mutable_fields_are_those_that_the_api_server_accepts_changes_of() -> None:
    deadlines = {"activeDeadlineSeconds", "pendingDeadlineSeconds", "ttlSecondsAfterFinished"}
    assert {"suspend", "rolloutReplicas", *deadlines} == MUTABLE_FIELDS


def test_mutable_fields_are_not_resolved_from_the_job() -> None:
    job = {**COMMAND, "suspend": True, "activeDeadlineSeconds": 1}
    resolved = build_resolved_spec(job, {"defaults": {"ttlSecondsAfterFinished": 60}})
    assert (resolved["suspend"], resolved["activeDeadlineSeconds"]) == (False, None)
    read = read_resolved_spec(resolved, job).spec
    assert read
    assert (read.suspend, read.active_deadline_seconds, read.ttl_seconds_after_finished) == (True, 1, 60)


def test_an_unknown_field_is_a_finding() -> None:
    (finding,) = read_resolved_spec({**build_resolved_spec(COMMAND, None), "later": 1}, {}).findings
    assert finding.field == "status.resolvedSpec.later"


@pytest.mark.parametrize(
    "manifest", [{}, {"status": {}}, *({"status": {"resolvedSpec": text}} for text in ("", "{", "[]"))]
)
def test_a_status_without_a_resolved_spec_has_an_empty_one(manifest: dict[str, Any]) -> None:
    assert get_resolved_spec(manifest) == {}


def test_the_text_is_one_line() -> None:
    """Of `kubectl describe`, which prints each field of an object on another line."""
    job = {**COMMAND, "framework": {"type": "command", "command": ["python", "-c", "print(1)\nprint('é')"]}}
    resolved = build_resolved_spec(job, None)
    text = dump_resolved_spec(resolved)
    assert len(text.splitlines()) == 1
    assert get_resolved_spec({"status": {"resolvedSpec": text}}) == resolved
