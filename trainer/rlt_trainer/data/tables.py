"""Examples from a user's own rows: parquet, JSON lines or the hub, in verl's columns or in two that the job names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from rlt_api.blocks.data import Data, DataFilter
from rlt_trainer.data.hub import hub_rows
from rlt_trainer.data.prompt import Example, Split

Row = dict[str, Any]

JSON_LINES = (".jsonl", ".json")


def file_examples(data: Data, split: Split) -> list[Example]:
    """The examples of data.files or data.valFiles, in order. Raises ValueError with file, row, column and the fix."""
    files, field = (data.files, "data.files") if split == "train" else (data.val_files, "data.valFiles")
    examples: list[Example] = []
    for name in files or []:
        path = Path(name)
        if not path.is_file():
            raise ValueError(f"{field} {name}: no such file in the pod. spec.storage mounts a volume in all pods.")
        rows = _json_lines(path, field) if path.suffix in JSON_LINES else _parquet(path, field)
        examples += _examples(rows, data, f"{field} {name}", path.stem)
    return examples


def hub_examples(data: Data, split: Split) -> list[Example]:
    """The examples of data.hub's split for training or validation. Raises ValueError with row, column and the fix."""
    assert data.hub is not None
    name = data.hub.split if split == "train" else data.hub.val_split
    if name is None:
        return []
    return _examples(hub_rows(data.hub, name), data, f"data.hub {data.hub.name}, split {name}", data.hub.name)


def inline_examples(data: Data) -> list[Example]:
    """The examples that stand in the job itself."""
    return [Example(each.prompt, each.answer, each.answer, "inline") for each in data.inline or []]


def keeps(row: Row, filters: Sequence[DataFilter], where: str) -> bool:
    """Whether a row fulfils all filters. Raises ValueError for a column that it does not have."""
    return all(str(_column(row, each.column, where, "data.filters")) in each.values for each in filters)


def _examples(rows: Iterable[tuple[int, Row]], data: Data, where: str, data_source: str) -> list[Example]:
    numbered = list(rows)
    if not numbered:
        raise ValueError(f"{where} is empty.")
    kept = [(number, row) for number, row in numbered if keeps(row, data.filters, f"{where}, row {number}")]
    if not kept:
        raise ValueError(f"{where}: data.filters leave none of its {len(numbered)} rows.")
    return [_example(row, data, f"{where}, row {number}", data_source) for number, row in kept]


def _example(row: Row, data: Data, where: str, data_source: str) -> Example:
    prompt = _column(row, data.prompt_key, where, "data.promptKey")
    if not isinstance(prompt, str) and not _is_conversation(prompt):
        raise ValueError(
            f"{where}: column {data.prompt_key} is neither text nor a list of messages with role and content."
        )
    reward_model = row.get("reward_model")
    if isinstance(reward_model, dict) and reward_model.get("ground_truth") is not None:
        ground_truth = str(reward_model["ground_truth"])
    else:
        ground_truth = str(_column(row, data.answer_key, where, "data.answerKey"))
    given = row.get("extra_info")
    extra = given if isinstance(given, dict) else {}
    solution = str(extra.get("answer") or ground_truth)
    return Example(prompt, ground_truth, solution, str(row.get("data_source") or data_source), extra)


def _is_conversation(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(each, dict) and {"role", "content"} <= set(each) for each in value)
    )


def _column(row: Row, name: str, where: str, field: str) -> Any:
    if name not in row:
        raise ValueError(f"{where} has no column {name}; it has {', '.join(row)}. Change {field} or the file.")
    if row[name] is None:
        raise ValueError(f"{where}: column {name} ({field}) is null. Give it a value, or leave the row out.")
    return row[name]


def _parquet(path: Path, field: str) -> Iterator[tuple[int, Row]]:
    try:
        rows: list[Row] = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise ValueError(f"{field} {path} cannot be read as parquet: {error}. JSON lines end in .jsonl.") from error
    yield from enumerate(rows, start=1)


def _json_lines(path: Path, field: str) -> Iterator[tuple[int, Row]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:  # JSON or UTF-8
                raise ValueError(f"{field} {path}, line {number} is not JSON ({error}).") from error
            if not isinstance(row, dict):
                raise ValueError(f"{field} {path}, line {number} is no object.")
            yield number, row
