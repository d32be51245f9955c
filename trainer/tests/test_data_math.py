"""The published files of MATH are converted to verl's parquet, and then read as prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from rlt_api.blocks.data import Data
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.dataset import EvaluationSet, PromptDataset
from rlt_trainer.data.final_answer import extract_last_boxed
from rlt_trainer.data.hendrycks_math import read_math_rows

TOKENIZER = build_byte_tokenizer()


def problem(number: int) -> dict[str, str]:
    return {"problem": f"What is {number}?", "level": "Level 1", "type": "Algebra", "solution": f"\\boxed{{{number}}}"}


def published(folder: Path) -> Path:
    for split, subject, number in (("train", "algebra", 10), ("train", "algebra", 9), ("test", "geometry", 2)):
        path = folder / split / subject / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(problem(number)))
    return folder


def test_a_row_has_verls_format(tmp_path: Path) -> None:
    data = Data(preset="math", path=str(published(tmp_path / "source")))
    PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path)
    row, _ = pq.read_table(tmp_path / "data" / "math" / "train.parquet").to_pylist()
    prompt = "What is 9? Let's think step by step and output the final answer within \\boxed{}."
    assert row == {
        "data_source": "DigitalLearningGmbH/MATH-lighteval",
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "9"},
        "extra_info": {"split": "train", "index": 0, "answer": "\\boxed{9}", "question": "What is 9?"},
    }


def test_the_test_split_is_for_evaluation(tmp_path: Path) -> None:
    data = Data(preset="math", path=str(published(tmp_path / "source")))
    (prompt,) = EvaluationSet.load(data, TOKENIZER, seed=0, run_directory=tmp_path).prompts
    assert (prompt.ground_truth, prompt.solution) == ("2", "\\boxed{2}")


def test_json_lines_are_read_like_folders(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(problem(n)) + "\n" for n in (3, 4)))
    assert [row["reward_model"]["ground_truth"] for row in read_math_rows(tmp_path, "train")] == ["3", "4"]


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"So $\boxed{7}$.", "7"),
        (r"\boxed{1} and \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{3}", "3"),
        (r"$\boxed 5$ it is", "5"),
        (r"\boxed{1} then $\boxed 5$", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{\text{a {b} c}} }", r"\text{a {b} c}"),
        (r"\boxed{1", None),
        ("none", None),
    ],
)
def test_the_answer_is_the_last_box(solution: str, answer: str | None) -> None:
    assert extract_last_boxed(solution) == answer


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"problem": "?", "solution": "7"}, r"line 1: the solution has no \\boxed\{...\}, so responses"),
        ({"problem": "?"}, r'line 1 has no text "solution" \(found: \'problem\'\). MATH\'s problems are'),
        ("", "line 1 is not a JSON object but a str"),
    ],
)
def test_an_invalid_problem_is_reported(tmp_path: Path, row: object, message: str) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    with pytest.raises(ValueError, match=message):
        read_math_rows(tmp_path, "train")


def test_an_empty_or_missing_split_is_reported(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(ValueError, match="split train has no problems"):
        read_math_rows(tmp_path, "train")
    with pytest.raises(ValueError, match=r"has neither a folder test nor a file test.jsonl"):
        read_math_rows(tmp_path, "test")
