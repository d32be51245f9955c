"""docs/memory-settings.md: each row of its table is valid, has room, and is what `rlt init` writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlt.first_job.gpus import GPUS
from rlt.first_job.manifests import build_first_job
from rlt.first_job.request import Request
from rlt_api.rules.engine_memory import CACHE_SHARE, cache_share
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

PAGE = (Path(__file__).parents[2] / "docs/memory-settings.md").read_text()
ROW = re.compile(
    r"^\| (?P<model>\S+/\S+) \| (?P<nodes>\d+) x (?P<per_node>\d+) `(?P<gpu>\w+)` \((?P<gb>\d+) GB\) \| "
    r"(?P<trains>all weights|adapters) \| (?P<parallel>\d+) \| (?P<share>[\d.]+) \| (?P<others>.*) \|$",
    re.MULTILINE,
)
ROWS = [match.groupdict() for match in ROW.finditer(PAGE)]


def name(row: dict[str, str]) -> str:
    return f"{row['model']}-{row['gpu']}-{row['trains']}"


def read_settings(row: dict[str, str]) -> dict[str, Any]:
    """The settings of a row, as in the blocks training and rollout."""
    training: dict[str, Any] = {}
    for field, value in re.findall(r"`([\w.]+)(?:: (\d+))?`", row["others"]):
        block, _, last = field.rpartition(".")
        (training.setdefault(block, {}) if block else training)[last] = int(value) if value else True
    rollout = {"tensorParallelSize": int(row["parallel"]), "gpuMemoryUtilization": float(row["share"])}
    return {"training": training, "rollout": rollout}


def test_the_table_has_four_models_on_four_memories() -> None:
    cells = {(row["model"].partition("/")[2], row["gb"]) for row in ROWS}
    models = ("Qwen2.5-7B-Instruct", "Qwen2.5-32B-Instruct", "Qwen2.5-72B-Instruct", "Qwen3-30B-A3B")
    expected = {(model, gb) for model in models for gb in ("24", "80", "141", "192")}
    assert cells == expected - {("Qwen2.5-72B-Instruct", "24")}
    assert len(re.findall(r"^\| Qwen/", PAGE, re.MULTILINE)) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_a_row_is_valid_has_room_and_is_what_init_writes(row: dict[str, str]) -> None:
    lora = row["trains"] == "adapters"
    request = Request(row["model"], row["gpu"], int(row["per_node"]), int(row["nodes"]), data="math", lora=lora)
    first = build_first_job(request)
    written = first.job["spec"]
    settings = read_settings(row)
    assert {"tensorParallelSize": 1, **written["rollout"]} == {**written["rollout"], **settings["rollout"]}
    given = {*settings["training"]}
    optional = {"reference", "fsdp", "ppoMaxTokenLenPerDevice", "expertParallelSize"}
    assert given == optional & {*written["training"]}
    assert {key: written["training"][key] for key in given} == settings["training"]
    validated = validate_job("row", written, first.runtime["spec"])
    assert validated.findings == ()
    assert validated.spec
    assert [*find_warnings(validated.spec)] == []
    assert (cache_share(validated.spec) or 0) >= CACHE_SHARE
    assert GPUS[row["gpu"]].memory
