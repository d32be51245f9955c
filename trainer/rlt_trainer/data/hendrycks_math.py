"""MATH (arXiv 2103.03874) as published, in rows of verl's examples/data_preprocess/math_dataset.py.

Published are a folder train and a folder test with a JSON file for each problem, by subject, or copies with the same
fields in train.jsonl and test.jsonl.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlt_trainer.data.prompt import Split
from rlt_trainer.data.published import read_json, read_json_lines, texts, verl_row

DATA_SOURCE = "DigitalLearningGmbH/MATH-lighteval"
"""verl's name: its rewards know the data set by it."""
INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."

_FORM = 'MATH\'s problems are {"problem": ..., "solution": ..., "level": ..., "type": ...}'


def math_rows(folder: Path, split: Split) -> list[dict[str, Any]]:
    """The rows of a split. Raises ValueError naming the file, the line and the fix."""
    rows = []
    for index, (where, problem) in enumerate(_problems(folder, split)):
        published = texts(problem, ("problem", "solution"), where, _FORM)
        answer = last_boxed(published["solution"])
        if answer is None:
            raise ValueError(
                f"{where}: there is no \\boxed{{...}} in the solution, so that nothing can be scored against it. Add "
                "it, or leave the problem out."
            )
        rows.append(
            verl_row(
                split,
                index,
                data_source=DATA_SOURCE,
                asked=f"{published['problem']} {INSTRUCTION}",
                question=published["problem"],
                answer=published["solution"],
                ground_truth=answer,
            )
        )
    if not rows:
        raise ValueError(f"data.path {folder}: its {split} has no problem. Copy the published files anew.")
    return rows


def last_boxed(solution: str) -> str | None:
    r"""What stands in the last \boxed{...} or \fbox{...}, or behind the last "\boxed " up to a $. None: nothing."""
    bare = solution.rfind("\\boxed ")
    begin = max(solution.rfind("\\boxed{"), solution.rfind("\\fbox{"))
    if bare > begin:
        return solution[bare + len("\\boxed ") :].partition("$")[0].strip()
    if begin < 0:
        return None
    first, depth = solution.index("{", begin), 0
    for place in range(first, len(solution)):
        depth += {"{": 1, "}": -1}.get(solution[place], 0)
        if depth == 0:
            return solution[first + 1 : place]
    return None


def _problems(folder: Path, split: Split) -> Iterator[tuple[str, dict[str, Any]]]:
    lines, files = folder / f"{split}.jsonl", folder / split
    if lines.is_file():
        yield from read_json_lines(lines)
    elif files.is_dir():
        # By subject, and by number within it: as a listing of names has them, 10.json would come before 2.json.
        for path in sorted(files.rglob("*.json"), key=lambda path: (path.parent, len(path.name), path.name)):
            yield str(path), read_json(path)
    else:
        raise ValueError(
            f"data.path {folder} has neither a folder {split} nor a file {split}.jsonl: put MATH's there, as it is "
            "published."
        )
