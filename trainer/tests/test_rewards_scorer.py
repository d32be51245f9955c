"""A job's reward is the weighted sum of the rules that it names."""

from __future__ import annotations

import pytest

from rlt_api.blocks.rewards import Reward
from rlt_api.training_config import PRESET_REWARD
from rlt_trainer.rewards import RULES, Scorer


def test_rewards_are_weighted_and_added() -> None:
    scorer = Scorer([Reward(name="exact", weight=2.0), Reward(name="gsm8k", weight=-0.5)])
    assert scorer("7", "7") == 2.0
    assert scorer("#### 7", "7") == -0.5
    assert scorer("8", "7") == 0.0


@pytest.mark.parametrize(("preset", "right", "wrong"), [("arithmetic", "095", "096"), ("gsm8k", "#### 095", "095")])
def test_each_preset_has_a_rule_of_its_own(preset: str, right: str, wrong: str) -> None:
    scorer = Scorer([Reward(name=PRESET_REWARD[preset])])
    assert (scorer(right, "095"), scorer(wrong, "095")) == (1.0, 0.0)


@pytest.mark.parametrize(("name", "nearest"), [("exct", "exact"), ("gsm8", "gsm8k"), ("openai.gsm8k", "gsm8k")])
def test_an_unknown_rule_is_refused_with_the_known_ones_and_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f'"{name}".*exact, gsm8k.*did you mean "{nearest}"'):
        Scorer([Reward(name=name)])


def test_a_name_like_no_other_is_refused_too() -> None:
    with pytest.raises(ValueError, match=r'no rule "zzz".*exact, gsm8k'):
        Scorer([Reward(name="zzz")])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("response", ["", "1", "#### 1", "x" * 1000, "\udc80"])
def test_every_rule_scores_between_0_and_1(rule: str, response: str) -> None:
    assert 0.0 <= RULES[rule](response, "1") <= 1.0
