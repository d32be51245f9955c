"""Examples from a user's rows in parquet files, JSON lines, the Hugging Face hub or the job.

Columns are verl's, or the two that data.promptKey and data.answerKey name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from rlt_api.blocks.data import Data, DataFilter, HubDataset
from rlt_trainer.data.images import name_images, read_images
from rlt_trainer.data.prompt import Example

Row = dict[str, Any]

JSON_LINES_SUFFIXES = (".jsonl", ".json")


@dataclass(frozen=True)
class SourceRow:
    """A row of files or hub."""

    columns: Row
    location: str
    """Field, file and number of the row, for messages."""
    source: str
    """Name of the file without its suffix, or of the data set."""


def read_rows(data: Data) -> list[SourceRow]:
    """Read the rows of files or hub that match data.filters, in order. Raises ValueError with file, row and the fix."""
    if data.hub is None:
        return _read_file_rows(data)
    hub = data.hub
    return _select_rows(read_hub_rows(hub, hub.split), data, f"data.hub {hub.name}, split {hub.split}", hub.name)


def read_table(data: Data) -> list[Example]:
    """Read data.files or data.hub, in order. Raises ValueError with file, row, column and the fix."""
    rows = read_rows(data)
    if data.curriculum is None:
        return [_build_example(row, data) for row in rows]
    column = data.curriculum.column
    return [replace(_build_example(row, data), difficulty=_read_difficulty(row, column)) for row in rows]


def _read_file_rows(data: Data) -> list[SourceRow]:
    field = "data.files"
    found: list[SourceRow] = []
    for name in data.files or []:
        path = Path(name)
        if not path.is_file():
            raise ValueError(
                f"{field} {name}: no such file in the pod. Put it on a volume: spec.storage mounts one in all pods."
            )
        rows = _read_json_lines(path, field) if path.suffix in JSON_LINES_SUFFIXES else _read_parquet(path, field)
        found += _select_rows(rows, data, f"{field} {name}", path.stem)
    return found


def read_inline(data: Data) -> list[Example]:
    """Read data.inline, the examples in the job itself."""
    return [Example(each.prompt, each.answer, each.answer, "inline") for each in data.inline or []]


def _select_rows(rows: Iterable[tuple[int, Row]], data: Data, location: str, source: str) -> list[SourceRow]:
    numbered = [SourceRow(row, f"{location}, row {n}", source) for n, row in rows]
    if not numbered:
        raise ValueError(f"{location} is empty. Add rows or remove it from the job.")
    kept = [row for row in numbered if _matches_filters(row, data.filters)]
    if not kept:
        raise ValueError(f"{location}: no row of {len(numbered)} matches data.filters. Change the filters or the data.")
    return kept


def _matches_filters(row: SourceRow, filters: Sequence[DataFilter]) -> bool:
    return all(str(require_column(row, each.column, "data.filters")) in each.values for each in filters)


def _read_difficulty(row: SourceRow, column: str) -> float:
    value = require_column(row, column, "data.curriculum.column")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(
            f"{row.location}: column {column} (data.curriculum.column) is {str(value)[:80]!r}, which is not a number. "
            "Write the difficulty as a number, or name another column."
        )
    return float(value)


def _build_example(source: SourceRow, data: Data) -> Example:
    row = source.columns
    location = source.location
    prompt = require_column(source, data.prompt_key, "data.promptKey")
    if not isinstance(prompt, str) and not is_conversation(prompt):
        raise ValueError(
            f"{location}: column {data.prompt_key} is neither text nor a list of messages with role and content. "
            "Change data.promptKey or the data."
        )
    reward_model = row.get("reward_model")
    if isinstance(reward_model, dict) and reward_model.get("ground_truth") is not None:
        ground_truth = str(reward_model["ground_truth"])
    else:
        ground_truth = str(require_column(source, data.answer_key, "data.answerKey"))
    given = row.get("extra_info")
    extra = given if isinstance(given, dict) else {}
    solution = str(extra.get("answer") or ground_truth)
    images: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()
    if data.image_key is not None:
        if data.image_key not in row:
            raise ValueError(
                f"{location} has no column {data.image_key}; it has {', '.join(row)}. Change data.imageKey or the file."
            )
        images = read_images(row[data.image_key], f"{location}, column {data.image_key}")
        names = name_images(row[data.image_key], images)
    return Example(prompt, ground_truth, solution, str(row.get("data_source") or source.source), extra, images, names)


def is_conversation(value: object) -> bool:
    """Whether the value is a list of messages with role and content."""
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(each, dict) and {"role", "content"} <= set(each) for each in value)
    )


def require_column(row: SourceRow, name: str, field: str) -> Any:
    """Return the value of a column that `field` needs. Raises ValueError if it is missing or null."""
    columns = row.columns
    location = row.location
    if name not in columns:
        raise ValueError(f"{location} has no column {name}; it has {', '.join(columns)}. Change {field} or the file.")
    if columns[name] is None:
        raise ValueError(f"{location}: column {name} ({field}) is null. Set a value or remove the row.")
    return columns[name]


def _read_parquet(path: Path, field: str) -> Iterator[tuple[int, Row]]:
    try:
        rows: list[Row] = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise ValueError(
            f"{field} {path} cannot be read as parquet: {error}. Name a file of JSON lines .jsonl."
        ) from error
    yield from enumerate(rows, start=1)


def _read_json_lines(path: Path, field: str) -> Iterator[tuple[int, Row]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:  # JSON or UTF-8
                raise ValueError(
                    f"{field} {path}, line {number} is not JSON ({error}). Correct or remove the line."
                ) from error
            if not isinstance(row, dict):
                raise ValueError(f"{field} {path}, line {number} is not a JSON object. Correct or remove the line.")
            yield number, row


def read_hub_rows(hub: HubDataset, split: str, field: str = "data.hub") -> Iterator[tuple[int, Row]]:
    """Yield the number and the columns of each row. Raises ValueError with the `field` that names the data set."""
    import datasets  # type: ignore[import-untyped] # slow import that other sources do not need

    try:
        rows = datasets.load_dataset(hub.name, hub.config, split=split, revision=hub.revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        if datasets.config.HF_HUB_OFFLINE:
            fix = "HF_HUB_OFFLINE is set, and the cache HF_HOME does not contain the data set: unset it, or use files."
        else:
            fix = (
                "Verify name, config, split and revision, and that the pods can connect to the hub "
                "(HF_ENDPOINT, HF_TOKEN)."
            )
        raise ValueError(f"{field} {hub.name}, split {split}: it cannot be loaded ({reason}). {fix}") from error
    yield from enumerate(rows, start=1)
