"""The gsm8k rule scores as verl does: on more than 100 spellings, on whole solutions, and on ten megabytes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from word_problems import WORD_PROBLEMS, find_gsm8k

from rlt_trainer.rewards.rules import gsm8k

VERL = json.loads((Path(__file__).parent / "oracles/verl.json").read_text())["gsm8k"]
"""Scores of verl 0.9.1 for trainer/oracles/gsm8k_spellings.py, with both methods."""


def test_the_spellings_distinguish_the_methods() -> None:
    assert len(VERL) >= 100
    assert {(case["strict"], case["flexible"]) for case in VERL} == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("method", ["strict", "flexible"])
@pytest.mark.parametrize("case", VERL, ids=lambda case: f"{case['response'][:30]!a}-{case['answer'][:30]}")
def test_gsm8k_scores_as_verl_does(case: dict[str, Any], method: str) -> None:
    assert gsm8k(case["response"], case["answer"], method=method) == case[method]


@pytest.mark.parametrize("method", ["strict", "flexible"])
@pytest.mark.parametrize("unit", ["#", "#### ", "#### 1,", "9", "#### -", "-", ".,", "\x00", "🎉"])
def test_gsm8k_takes_no_longer_on_ten_megabytes_than_on_their_end(unit: str, method: str) -> None:
    hostile = unit * (10_000_000 // len(unit))
    end = hostile[-300:]
    seconds = {name: _fastest(text, method) for name, text in {"hostile": hostile, "end": end}.items()}
    assert seconds["hostile"] < 20 * seconds["end"]


def _fastest(text: str, method: str) -> float:
    def once() -> float:
        start = time.perf_counter()
        gsm8k(text, "1", method=method)
        return time.perf_counter() - start

    return min(once() for _ in range(20))


def test_a_ground_truth_may_be_the_whole_solution() -> None:
    """The answer column of openai/gsm8k on the hub."""
    solution = "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 1,072"
    assert gsm8k("so #### 1072", solution) == gsm8k("so 1072", solution, method="flexible") == 1.0
    assert gsm8k("so #### 24", solution) == 0.0


def test_gsm8k_scores_a_whole_solution_1_and_another_number_0() -> None:
    answers = read_answers(WORD_PROBLEMS)
    assert len(answers) == 16
    assert_scored(answers)


@pytest.mark.parametrize("split", ["train", "test"])
def test_gsm8k_scores_every_published_answer_1_and_another_number_0(split: str) -> None:
    answers = read_answers(find_gsm8k() / f"{split}.jsonl")
    assert len(answers) > 1000
    assert_scored(answers)


def read_answers(file: Path) -> list[str]:
    return [json.loads(line)["answer"] for line in file.read_text(encoding="utf-8").splitlines()]


def assert_scored(answers: list[str]) -> None:
    """Assert that each solution has score 1 for its answer and 0 for another number."""
    for answer in answers:
        truth = answer.rpartition("#### ")[2].replace(",", "")
        assert gsm8k(answer, truth) == 1.0, answer
        assert gsm8k(answer, truth + "1") == 0.0, answer
