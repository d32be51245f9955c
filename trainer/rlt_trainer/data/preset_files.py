"""Files of the data sets GSM8K and MATH: the published JSON, and the parquet files that it is converted to.

The parquet columns are from verl's examples/data_preprocess, so that verl can train on the same files.
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
    """Read the object in a JSON file. Raises ValueError with the file and the fix."""
    return _parse_object(path.read_bytes(), str(path))


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the location and the object of each line. Raises ValueError with the line and the fix."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            location = f"{path}, line {number}"
            yield location, _parse_object(line, location)


def require_texts(row: dict[str, Any], keys: Sequence[str], location: str, form: str) -> dict[str, str]:
    """Return the texts of `keys`. Raises ValueError, with the expected `form`, if one is missing or not a string."""
    for key in keys:
        if not isinstance(row.get(key), str):
            found = ", ".join(map(repr, row)) or "nothing"
            raise ValueError(f'{location} has no text "{key}" (found: {found}). {form}; rename the fields to these.')
    return {key: row[key] for key in keys}


def build_verl_row(
    split: Split, index: int, *, data_source: str, prompt: str, question: str, answer: str, ground_truth: str
) -> dict[str, Any]:
    """Build a row of verl's format. `prompt` is the question with its instruction, `answer` a complete response."""
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"split": split, "index": index, "answer": answer, "question": question},
    }


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows to a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(pa.Table.from_pylist(list(rows), schema=_SCHEMA), partial)
    partial.replace(path)


def read_parquet(path: Path) -> list[Example]:
    """Read the examples of a converted split. Raises ValueError if a column of verl's format is missing."""
    table = pq.read_table(path)
    required = ("data_source", "prompt", "reward_model", "extra_info")
    missing = [name for name in required if name not in table.column_names]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(missing)}; it has {', '.join(table.column_names) or 'none'}. "
            "Delete it: the next run creates it again from data.path."
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


def convert_examples(
    read_rows: Callable[[Path | None], list[dict[str, Any]]], source: str | None, target: Path, split: Split
) -> list[Example]:
    """Convert the published files in the folder `source`, or None for the hub's, to target/SPLIT.parquet, and read the
    examples from there."""
    if source is not None and not Path(source).is_dir():
        raise ValueError(
            f"data.path {source}: no such folder in the pod. Put the published files of the data set there "
            "(spec.storage mounts a volume in all pods), or remove data.path to download them."
        )
    parquet = target / f"{split}.parquet"
    if source is None:
        write_parquet(read_rows(None), parquet)
        return read_parquet(parquet)
    try:
        write_parquet(read_rows(Path(source)), parquet)
    except ValueError as error:
        raise ValueError(f"data.path: {error}") from error
    return read_parquet(parquet)


def _parse_object(text: bytes, location: str) -> dict[str, Any]:
    try:
        row = json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"{location} is not UTF-8 text. Decompress the file or copy it again.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{location} is not JSON ({error}). Copy the file again.") from error
    if not isinstance(row, dict):
        raise ValueError(f"{location} is not a JSON object but a {type(row).__name__}. Copy the file again.")
    return row
