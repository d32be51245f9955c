"""The rules score as verl's do, on many spellings, on real answers and on hostile text."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rlt_trainer.rewards.rules import exact, gsm8k

GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"


@pytest.mark.parametrize("response", ["095", " 095", "095\n", "\t095 "])
def test_exact_ignores_white_space_around_the_response(response: str) -> None:
    assert exact(response, "095") == 1.0


@pytest.mark.parametrize("response", ["", "95", "0950", "095 095", "0 95", "095.", "the answer is 095"])
def test_exact_wants_the_whole_response(response: str) -> None:
    assert exact(response, "095") == 0.0


# Expected scores are those of verl.utils.reward_score.gsm8k.compute_score, method strict, verl 0.9.1.
@pytest.mark.parametrize(
    ("response", "ground_truth", "score"),
    [
        ("#### 18", "18", 1.0),
        ("She makes 18.\n#### 18", "18", 1.0),
        ("#### 18 dollars", "18", 1.0),
        ("#### 1,234", "1234", 1.0),
        ("#### -3", "-3", 1.0),
        ("#### 0.5", "0.5", 1.0),
        ("#### 1 and then #### 2", "2", 1.0),
        ("#### 1 and then #### 2", "1", 0.0),
        ("##### 18", "18", 1.0),
        ("#### 18#### 19", "19", 1.0),
        ("#### 18 #### none", "18", 1.0),
        ("18", "18", 0.0),
        ("### 18", "18", 0.0),
        ("####18", "18", 0.0),
        ("####  18", "18", 0.0),
        ("####\n18", "18", 0.0),
        ("#### $18", "18", 0.0),
        ("#### 18.", "18", 0.0),
        ("#### 18.0", "18", 0.0),
        ("#### +18", "18", 0.0),
        ("#### ١٨", "18", 0.0),
        ("#### ,", "", 1.0),
        ("", "18", 0.0),
        ("####", "18", 0.0),
        ("#### 18" + "." * 400, "18", 0.0),
    ],
)
def test_gsm8k_scores_as_verls_strict_rule(response: str, ground_truth: str, score: float) -> None:
    assert gsm8k(response, ground_truth) == score


def test_gsm8k_reads_only_the_last_300_characters() -> None:
    assert gsm8k("#### 18" + " " * 293, "18") == 1.0
    assert gsm8k("#### 18" + " " * 294, "18") == 0.0


@pytest.mark.parametrize("unit", ["#", "#### ", "#### 1,", "9", "#### -", "\x00", "🎉"])
def test_gsm8k_does_no_more_work_on_ten_megabytes_than_on_their_end(unit: str) -> None:
    hostile = unit * (10_000_000 // len(unit))
    end = hostile[-300:]
    seconds = {name: _fastest(text) for name, text in {"hostile": hostile, "end": end}.items()}
    assert seconds["hostile"] < 20 * seconds["end"]


def _fastest(text: str) -> float:
    def once() -> float:
        start = time.perf_counter()
        gsm8k(text, "1")
        return time.perf_counter() - start

    return min(once() for _ in range(20))


@pytest.mark.parametrize("split", ["train", "test"])
def test_gsm8k_gives_every_published_answer_full_marks_and_no_other_number(split: str) -> None:
    published = GSM8K / f"{split}.jsonl"
    if not published.is_file():
        pytest.skip(f"the published data set is not at {published}")
    answers = [json.loads(line)["answer"] for line in published.read_text(encoding="utf-8").splitlines()]
    assert len(answers) > 1000
    for answer in answers:
        truth = answer.rpartition("#### ")[2].replace(",", "")
        assert gsm8k(answer, truth) == 1.0, answer
        assert gsm8k(answer, truth + "1") == 0.0, answer
