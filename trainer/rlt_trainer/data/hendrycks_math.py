"""The preset math: the published files of MATH (arXiv 2103.03874) as rows of verl's
examples/data_preprocess/math_dataset.py.

The original has folders train and test with subfolders by subject and one JSON file for each problem. Copies have the
same fields in train.jsonl and test.jsonl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlt_trainer.data.final_answer import extract_last_boxed
from rlt_trainer.data.preset_files import build_verl_row, read_json, read_json_lines, require_texts
from rlt_trainer.data.prompt import Split

DATA_SOURCE = "DigitalLearningGmbH/MATH-lighteval"
"""verl's name. verl selects the reward by it."""
INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."

_FORM = 'MATH\'s problems are {"problem": ..., "solution": ..., "level": ..., "type": ...}'


def read_math_rows(folder: Path, split: Split) -> list[dict[str, Any]]:
    """Read the rows of a split. Raises ValueError with the file, the line and the fix."""
    rows = build_math_rows(_read_problems(folder, split), split)
    if not rows:
        raise ValueError(f"{folder}: split {split} has no problems. Copy the published files again.")
    return rows


def build_math_rows(problems: Iterable[tuple[str, dict[str, Any]]], split: Split) -> list[dict[str, Any]]:
    """Build the rows from the location and the object of each problem. Raises ValueError with location and fix."""
    rows = []
    for index, (location, problem) in enumerate(problems):
        texts = require_texts(problem, ("problem", "solution"), location, _FORM)
        answer = extract_last_boxed(texts["solution"])
        if answer is None:
            raise ValueError(
                f"{location}: the solution has no \\boxed{{...}}, so responses cannot be scored. Add it or remove the "
                "problem."
            )
        rows.append(
            build_verl_row(
                split,
                index,
                data_source=DATA_SOURCE,
                prompt=f"{texts['problem']} {INSTRUCTION}",
                question=texts["problem"],
                answer=texts["solution"],
                ground_truth=answer,
            )
        )
    return rows


def _read_problems(folder: Path, split: Split) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = folder / f"{split}.jsonl"
    files = folder / split
    if lines.is_file():
        yield from read_json_lines(lines)
    elif files.is_dir():
        # Sorted by subject, then by number. Sorted by name, 10.json would precede 2.json.
        for path in sorted(files.rglob("*.json"), key=lambda path: (path.parent, len(path.name), path.name)):
            yield str(path), read_json(path)
    else:
        raise ValueError(
            f"{folder} has neither a folder {split} nor a file {split}.jsonl. Put the published files of MATH there."
        )
