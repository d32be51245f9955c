"""Presets that are generated from a seed: each prompt's solution is correct by the preset's rule."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from rlt_api.blocks.data import Data
from rlt_api.spec.training_config import PRESET_REWARD
from rlt_trainer.data.arithmetic import generate_arithmetic
from rlt_trainer.data.bandit import generate_bandit
from rlt_trainer.data.byte_tokenizer import EOS
from rlt_trainer.data.calculator import generate_calculator
from rlt_trainer.data.digits import generate_digits
from rlt_trainer.data.prompt import Example, Split
from rlt_trainer.data.sources import read_examples
from rlt_trainer.environments.calculator import Calculator
from rlt_trainer.rewards.sources import RULES

Toy = Literal["arithmetic", "bandit", "calculator", "digits"]
TOYS: list[Toy] = ["arithmetic", "bandit", "calculator", "digits"]


def generate(preset: Toy, seed: int, split: Split = "train") -> list[Example]:
    return read_examples(Data(preset=preset), split, seed=seed, run_directory=Path("/nowhere"))


@pytest.mark.parametrize("preset", TOYS)
def test_the_seed_determines_the_examples(preset: Toy) -> None:
    assert generate(preset, 0) == generate(preset, 0)
    assert generate(preset, 0) != generate(preset, 1)


@pytest.mark.parametrize("preset", TOYS)
def test_solutions_are_correct_by_the_presets_rule(preset: Toy) -> None:
    rule = RULES[PRESET_REWARD[preset]]
    examples = [*generate(preset, 0), *generate(preset, 0, "test")]
    assert all(rule(example.solution, example.ground_truth) == 1.0 for example in examples)
    assert all(rule("wrong", example.ground_truth) < 1.0 for example in examples)


def test_arithmetic_is_all_sums_of_two_digit_numbers() -> None:
    train = generate_arithmetic(0, "train")
    test = generate_arithmetic(0, "test")
    answers = {str(example.prompt): example.ground_truth for example in [*train, *test]}
    assert len(answers) == len(train) + len(test) == 90 * 90
    assert (answers["37+58="], answers["10+10="], answers["99+99="]) == ("095", "020", "198")


def test_solutions_of_the_calculator_are_conversations_with_it() -> None:
    for example in generate_calculator(0, "test"):
        call, rest = example.solution.split(EOS)
        result, reward, is_done = Calculator().step(call)
        assert (rest, reward, is_done) == (f"{result}#### {example.ground_truth}", None, False)


def test_digits_has_all_series_of_verls_task() -> None:
    train = generate_digits(0, "train")
    test = generate_digits(0, "test")
    answers = {str(example.prompt): example.ground_truth for example in [*train, *test]}
    assert (len(train), len(test), len(answers)) == (800, 200, 1000)
    assert (answers["3,5:10,4"], answers["9,8:10,2"], answers["0,0:10,0"]) == ("7,9,1,3", "7,6", "")


def test_a_bandit_has_one_correct_digit_for_each_state() -> None:
    examples = generate_bandit(0)
    assert [example.prompt for example in examples] == ["a:", "b:", "c:", "d:"]
    assert len({example.ground_truth for example in examples}) == 4
    assert all(example.ground_truth in "0123456789" for example in examples)
