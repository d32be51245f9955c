"""The preset gsm8k: the published files of GSM8K (arXiv 2110.14168) as rows of verl's
examples/data_preprocess/gsm8k.py."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlt_trainer.data.final_answer import FINAL_ANSWER
from rlt_trainer.data.preset_files import build_verl_row, read_json_lines, require_texts
from rlt_trainer.data.prompt import Split

DATA_SOURCE = "openai/gsm8k"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'

_FORM = 'GSM8K\'s lines are {"question": ..., "answer": ...}'


def read_gsm8k_rows(folder: Path, split: Split) -> list[dict[str, Any]]:
    """Read the rows of a split. Raises ValueError with the file, the line and the fix."""
    path = folder / f"{split}.jsonl"
    if not path.is_file():
        raise ValueError(f"{folder} has no {path.name}. Download GSM8K's {path.name} into this folder.")
    rows = build_gsm8k_rows(read_json_lines(path), split)
    if not rows:
        raise ValueError(f"{path} is empty. Copy the published file again.")
    return rows


def build_gsm8k_rows(lines: Iterable[tuple[str, dict[str, Any]]], split: Split) -> list[dict[str, Any]]:
    """Build the rows from the location and the object of each line. Raises ValueError with the location and the fix."""
    rows = []
    for index, (location, line) in enumerate(lines):
        texts = require_texts(line, ("question", "answer"), location, _FORM)
        found = FINAL_ANSWER.search(texts["answer"])
        if found is None:
            raise ValueError(
                f'{location}: the answer does not end with "#### NUMBER", so responses cannot be scored. Add the '
                "number or remove the line."
            )
        rows.append(
            build_verl_row(
                split,
                index,
                data_source=DATA_SOURCE,
                prompt=f"{texts['question']} {INSTRUCTION}",
                ground_truth=found[1].replace(",", ""),
                **texts,
            )
        )
    return rows
