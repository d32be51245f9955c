"""What the presets of published data sets share: reading JSON, and verl's parquet, which they are prepared to.

The columns are those of verl's examples/data_preprocess, so that the same files train with verl.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from rlt_trainer.data.prompt import Example, Split

Published = dict[str, str]

_SCHEMA = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
        "ability": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": pa.struct(
            {"split": pa.string(), "index": pa.int64(), "answer": pa.string(), "question": pa.string()}
        ),
    }
)


def read_json(path: Path) -> dict[str, Any]:
    """The object that is the whole file. Raises ValueError naming the file and the fix."""
    return _object(path.read_bytes(), str(path))


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's object, with the words for where it stands. Raises ValueError naming the line and the fix."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            yield where, _object(line, where)


def texts(row: dict[str, Any], keys: Sequence[str], where: str, form: str) -> Published:
    """The texts of `keys`. Raises ValueError for a key that is missing or no text; `form` says what lines look like."""
    for key in keys:
        if not isinstance(row.get(key), str):
            found = ", ".join(map(repr, row)) or "nothing"
            raise ValueError(f'{where} has no text "{key}" (found: {found}). {form}; rename the fields to these.')
    return {key: row[key] for key in keys}


def verl_row(
    split: Split, index: int, *, data_source: str, asked: str, question: str, answer: str, ground_truth: str
) -> dict[str, Any]:
    """A row of verl's format: `asked` is the question with its instruction, `answer` the whole right response."""
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": asked}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"split": split, "index": index, "answer": answer, "question": question},
    }


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(pa.Table.from_pylist(list(rows), schema=_SCHEMA), partial)
    partial.replace(path)


def read_parquet(path: Path) -> list[Example]:
    """The examples of a prepared split. Raises ValueError when a column of verl's format is missing."""
    table = pq.read_table(path)
    needed = ("data_source", "prompt", "reward_model", "extra_info")
    missing = [name for name in needed if name not in table.column_names]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(missing)}; it has {', '.join(table.column_names) or 'none'}. "
            "Delete it: the next run prepares it anew from data.path."
        )
    return [
        Example(
            prompt=row["prompt"],
            ground_truth=row["reward_model"]["ground_truth"],
            solution=row["extra_info"]["answer"],
            data_source=row["data_source"],
            extra_info=row["extra_info"],
        )
        for row in table.to_pylist()
    ]


def prepared(
    prepare: Callable[[Path, Split], list[dict[str, Any]]], source: str | None, target: Path, split: Split
) -> list[Example]:
    """The examples of a split: those of the folder `source`, which `prepare` makes rows of, by way of parquet."""
    if source is None:
        raise ValueError("data.path is needed for this preset: the folder with the data set's files.")
    if not Path(source).is_dir():
        raise ValueError(
            f"data.path {source}: no such folder in the pod. Put the data set's files there, as they are published; "
            "spec.storage mounts a volume in all pods."
        )
    parquet = target / f"{split}.parquet"
    write_parquet(prepare(Path(source), split), parquet)
    return read_parquet(parquet)


def _object(text: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is no UTF-8 text: unpack it, or copy the file anew.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON ({error}): copy the file anew.") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where} is no JSON object but a {type(row).__name__}: copy the file anew.")
    return row
