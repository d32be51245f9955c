"""GSM8K (arXiv 2110.14168) as it is published, in rows of verl's examples/data_preprocess/gsm8k.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlt_trainer.data.final_answer import FINAL_ANSWER
from rlt_trainer.data.prompt import Split
from rlt_trainer.data.published import read_json_lines, texts, verl_row

DATA_SOURCE = "openai/gsm8k"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'

_FORM = 'GSM8K\'s lines are {"question": ..., "answer": ...}'


def gsm8k_rows(folder: Path, split: Split) -> list[dict[str, Any]]:
    """The rows of a split. Raises ValueError naming the file, the line and the fix."""
    path = folder / f"{split}.jsonl"
    if not path.is_file():
        raise ValueError(f"data.path {folder} has no {path.name}: put GSM8K's there, as it is published.")
    rows = []
    for index, (where, line) in enumerate(read_json_lines(path)):
        published = texts(line, ("question", "answer"), where, _FORM)
        found = FINAL_ANSWER.search(published["answer"])
        if found is None:
            raise ValueError(
                f'{where}: the answer does not end with "#### NUMBER", so that nothing can be scored against it. Add '
                "the number, or leave the line out."
            )
        rows.append(
            verl_row(
                split,
                index,
                data_source=DATA_SOURCE,
                asked=f"{published['question']} {INSTRUCTION}",
                ground_truth=found[1].replace(",", ""),
                **published,
            )
        )
    if not rows:
        raise ValueError(f"{path} is empty: copy the published file anew.")
    return rows
