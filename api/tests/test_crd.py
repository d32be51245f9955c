"""The CRD generated from the types.

- It is structural: the API server rejects and drops nothing.
- Every field has a description, and every string and list has a bound.
- The committed files are up to date.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from job_specs import BUILTIN, merged
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from rlt_api.model import quantity_value
from rlt_api.schema.crd import PRINTER_COLUMNS, build_job_crd
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.job_status import ProgressMetrics, RLTrainingJobStatus
from rlt_api.validation.validate import validate_manifest

ROOT = Path(__file__).parents[2]
TIME = "2026-01-02T03:04:05Z"
SCHEMA = build_job_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}.{key}")


def test_schema_is_structural() -> None:
    for path, node in nodes(SCHEMA):
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), path
        assert not {"$ref", "anyOf", "allOf", "oneOf", "const", "title"} & set(node), path


def test_every_field_has_a_description() -> None:
    without_description = [
        path
        for path, node in nodes(SCHEMA)
        if "description" not in node
        and path not in ("", ".metadata")
        and not path.endswith(("items", "additionalProperties"))
    ]
    assert without_description == []


OPEN_NUMBERS = {f".status.progress.metrics.{to_camel(name)}" for name in ProgressMetrics.model_fields} | {
    ".status.progress.reward",
    ".status.progress.tokensPerSecond",
}
"""Measured values, which have no bounds."""


def test_every_string_list_map_and_number_is_bounded() -> None:
    for path, node in nodes(SCHEMA):
        match node.get("type"):
            case _ if path in (".apiVersion", ".kind") or "enum" in node:
                continue
            case "string" | None:
                assert {"maxLength", "format"} & set(node), path
            case "array":
                assert "maxItems" in node, path
            case "integer" | "number" if path not in OPEN_NUMBERS:
                assert {"minimum", "maximum"} <= set(node), path
                assert int(float(node["maximum"])) == node["maximum"], f"{path}: the API server reads a float64"
            case "object" if "additionalProperties" in node:
                assert "maxProperties" in node, path


def measure(schema: dict[str, Any]) -> int:
    """The maximum number of characters of a value as JSON, without objects that accept any field."""
    match schema["type"]:
        case "string":
            longest = max(map(len, schema.get("enum", [""])))
            return 2 + max(int(schema.get("maxLength", 0)), longest, 20 if "format" in schema else 0)
        case "array":
            return 2 + int(schema["maxItems"]) * (1 + measure(schema["items"]))
        case "object" if "additionalProperties" in schema:
            return 2 + int(schema["maxProperties"]) * (70 + measure(schema["additionalProperties"]))
        case "object":
            return 2 + sum(4 + len(name) + measure(child) for name, child in schema.get("properties", {}).items())
    return 24


def test_the_largest_status_fits_in_etcd() -> None:
    fields = SCHEMA["properties"]["status"]["properties"]
    bounded = {name: field for name, field in fields.items() if name != "resolvedSpec"}  # which a rule bounds
    size = measure({"type": "object", "properties": bounded})
    assert 100_000 < size < 1.25 * 2**20, "the limit is 1.5 MiB with the spec"


def test_lists_of_the_status_are_merged_by_key() -> None:
    """Writers of other conditions do not conflict with the operator."""
    status = SCHEMA["properties"]["status"]["properties"]
    keys = {name: node.get("x-kubernetes-list-map-keys") for name, node in status.items() if node["type"] == "array"}
    assert (keys["conditions"], keys["attempts"]) == (["type"], ["number"])


def test_times_of_the_status_have_a_format() -> None:
    for path, node in nodes(SCHEMA["properties"]["status"]):
        if path.endswith(("Time", "Since", "lastUpdated")):
            assert node.get("format") == "date-time", path


def test_a_status_is_cut_to_its_bounds() -> None:
    long = {"type": "T" * 400, "status": "True", "reason": "R", "message": "x" * 9000, "lastTransitionTime": TIME}
    progress = {"step": 2**40, "totalSteps": -1, "percent": 4000, "display": "d", "lastUpdated": TIME}
    status = RLTrainingJobStatus.model_validate(
        {"conditions": [{**long, "observedGeneration": 2**70}] * 50, "progress": progress, "message": "é" * 5000}
    )
    condition, *_ = status.conditions
    schema = SCHEMA["properties"]["status"]["properties"]
    assert len(status.conditions) == schema["conditions"]["maxItems"]
    assert len(condition.type) == schema["conditions"]["items"]["properties"]["type"]["maxLength"]
    assert condition.message.endswith("x…")
    assert condition.observed_generation == 2**53 - 1
    assert status.progress
    assert (status.progress.step, status.progress.total_steps, status.progress.percent) == (2**31 - 1, 0, 100)
    assert len(status.message or "") == schema["message"]["maxLength"]


def test_printer_columns_refer_to_existing_fields() -> None:
    paths = {path for path, _ in nodes(SCHEMA)}
    for column in PRINTER_COLUMNS:
        assert column["jsonPath"] in paths or column["jsonPath"].startswith(".metadata."), column


def test_generated_files_are_up_to_date() -> None:
    script = [sys.executable, str(ROOT / "tools/generate.py"), "--check"]
    outcome = subprocess.run(script, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_valid_and_round_trip(example: Path) -> None:
    spec = RLTrainingJobSpec.model_validate(yaml.safe_load(example.read_text())["spec"])
    assert RLTrainingJobSpec.model_validate(spec.to_json()) == spec


def test_jobs_in_the_readme_are_valid() -> None:
    jobs = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)]
    assert jobs
    for job in jobs:
        assert validate_manifest(job, {}) == ()


def test_unknown_field_is_rejected_with_its_path() -> None:
    example = yaml.safe_load((ROOT / "examples/02-gsm8k-grpo.yaml").read_text())["spec"]
    example["rollout"]["temprature"] = 0.7
    with pytest.raises(ValidationError, match=r"rollout\.temprature"):
        RLTrainingJobSpec.model_validate(example)


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("2", 2.0),
        ("500m", 0.5),
        ("2Gi", 2 * 2**30),
        ("1.5Gi", 1.5 * 2**30),
        ("3M", 3e6),
        ("4Pi", 4 * 2**50),
        ("1P", 1e15),
        ("1E3", 1e3),
    ],
)
def test_quantities(quantity: str, value: float) -> None:
    assert quantity_value(quantity) == value


@pytest.mark.parametrize("folder", ["api", "pod", "operator", "trainer", "e2e", "charts", "images", "docs", "examples"])
def test_no_top_level_folder_is_a_package(folder: str) -> None:
    """A folder named operator with an __init__.py would hide the standard library's module."""
    assert not (ROOT / folder / "__init__.py").exists()
    assert not list((ROOT / folder).glob("**/tests/__init__.py"))


def test_a_quantity_may_be_an_integer() -> None:
    spec = RLTrainingJobSpec.model_validate(
        merged(BUILTIN, {"cluster": {"head": {"resources": {"cpu": 2, "memory": 2**33, "sharedMemory": "1Gi"}}}})
    )
    resources = spec.cluster.head.resources
    assert resources
    assert (resources.cpu, resources.memory, resources.shared_memory) == ("2", "8589934592", "1Gi")
