"""Examples from a user's own rows: parquet or JSON lines, in verl's columns or in two columns that the job names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from rlt_api.blocks.data import Data, DataFilter
from rlt_trainer.data.prompt import Example

Row = dict[str, Any]

JSON_LINES = (".jsonl", ".json")


def file_examples(data: Data) -> list[Example]:
    """The examples of data.files, in order. Raises ValueError with file, row, column and the fix."""
    assert data.files
    examples: list[Example] = []
    for name in data.files:
        path = Path(name)
        if not path.is_file():
            raise ValueError(f"data.files {name}: no such file in the pod. spec.storage mounts a volume in all pods.")
        rows = list(_json_lines(path) if path.suffix in JSON_LINES else _parquet(path))
        if not rows:
            raise ValueError(f"data.files {name} is empty.")
        kept = [(number, row) for number, row in rows if keeps(row, data.filters, f"{name}, row {number}")]
        if not kept:
            raise ValueError(f"data.files {name}: data.filters leave none of its {len(rows)} rows.")
        examples += [_example(row, data, f"{name}, row {number}", path.stem) for number, row in kept]
    return examples


def inline_examples(data: Data) -> list[Example]:
    """The examples that stand in the job itself."""
    assert data.inline
    return [Example(each.prompt, each.answer, each.answer, "inline") for each in data.inline]


def keeps(row: Row, filters: Sequence[DataFilter], where: str) -> bool:
    """Whether a row fulfils all filters. Raises ValueError for a column that it does not have."""
    return all(str(_column(row, each.column, where, "data.filters")) in each.values for each in filters)


def _example(row: Row, data: Data, where: str, stem: str) -> Example:
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
    extra = row.get("extra_info")
    solution = extra.get("answer") if isinstance(extra, dict) else None
    return Example(prompt, ground_truth, str(solution or ground_truth), str(row.get("data_source") or stem))


def _is_conversation(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(each, dict) and {"role", "content"} <= set(each) for each in value)
    )


def _column(row: Row, name: str, where: str, field: str) -> Any:
    if row.get(name) is None:
        raise ValueError(f"{where} has no column {name}; it has {', '.join(row)}. Change {field} or the file.")
    return row[name]


def _parquet(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        rows: list[Row] = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise ValueError(f"data.files {path} cannot be read as parquet: {error}. JSON lines end in .jsonl.") from error
    yield from enumerate(rows, start=1)


def _json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:  # JSON or UTF-8
                raise ValueError(f"data.files {path}, line {number} is not JSON ({error}).") from error
            if not isinstance(row, dict):
                raise ValueError(f"data.files {path}, line {number} is no object.")
            yield number, row
