"""GSM8K (arXiv 2110.14168): from the published JSON lines to parquet in verl's format, and from there to examples.

The format is that of verl's examples/data_preprocess/gsm8k.py, so that the same files train with verl.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from rlt_trainer.data.prompt import Example
from rlt_trainer.rewards.rules import FINAL_ANSWER

DATA_SOURCE = "openai/gsm8k"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
SPLITS = ("train", "test")

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


def prepare_gsm8k(source: Path, target: Path) -> None:
    """Write target/train.parquet and target/test.parquet from source/train.jsonl and source/test.jsonl.

    Raises ValueError naming the file, the line and the fix when one is missing, empty or not GSM8K.
    """
    if not source.is_dir():
        raise ValueError(
            f"data.path {source}: no such folder in the pod. Put GSM8K's train.jsonl and test.jsonl there; "
            "spec.storage mounts a volume in all pods."
        )
    target.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        rows = [_verl_row(split, index, *pair) for index, pair in enumerate(_read_published(source / f"{split}.jsonl"))]
        partial = target / f".{split}.parquet.{os.getpid()}"
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), partial)
        partial.replace(target / f"{split}.parquet")


def gsm8k_examples(parquet: Path) -> list[Example]:
    """The examples of one prepared split. Raises ValueError when a column of verl's format is missing."""
    table = pq.read_table(parquet)
    needed = ("data_source", "prompt", "reward_model", "extra_info")
    missing = [name for name in needed if name not in table.column_names]
    if missing:
        raise ValueError(
            f"{parquet} has no column {', '.join(missing)}; it has {', '.join(table.column_names) or 'none'}. "
            "Delete it: the next run prepares it anew from data.path."
        )
    return [
        Example(
            prompt=row["prompt"],
            ground_truth=row["reward_model"]["ground_truth"],
            solution=row["extra_info"]["answer"],
            data_source=row["data_source"],
        )
        for row in table.to_pylist()
    ]


def _read_published(path: Path) -> list[tuple[str, str]]:
    """(question, answer) of every line of a published file."""
    if not path.is_file():
        raise ValueError(f"data.path {path.parent} has no {path.name}: put GSM8K's there, as it is published.")
    pairs = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line.decode())
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number} is no UTF-8 text: unpack it, or copy the file anew."
                ) from error
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number} is not JSON ({error}): copy the file anew.") from error
            for key in ("question", "answer"):
                if not isinstance(row, dict) or not isinstance(row.get(key), str):
                    found = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
                    raise ValueError(
                        f'{path}, line {number} has no text "{key}" (found: {found}). '
                        'GSM8K\'s lines are {"question": ..., "answer": ...}; rename the fields to these.'
                    )
            if not FINAL_ANSWER.search(row["answer"]):
                raise ValueError(
                    f'{path}, line {number}: the answer does not end with "#### NUMBER", so that nothing can be '
                    "scored against it. Add the number, or leave the line out."
                )
            pairs.append((row["question"], row["answer"]))
    if not pairs:
        raise ValueError(f"{path} is empty: copy the published file anew.")
    return pairs


def _verl_row(split: str, index: int, question: str, answer: str) -> dict[str, Any]:
    match = FINAL_ANSWER.search(answer)
    assert match is not None, "checked while reading"
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": f"{question} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": match[1].replace(",", "")},
        "extra_info": {"split": split, "index": index, "answer": answer, "question": question},
    }
