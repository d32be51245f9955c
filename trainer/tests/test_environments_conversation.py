"""Turns and observations become one response: token in, token out, with what was not chosen marked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.algorithms import user_functions
from rlt_trainer.data.byte_tokenizer import byte_tokenizer
from rlt_trainer.data.encoding import chat_text, tokenize
from rlt_trainer.data.prompt import Example, Prompt
from rlt_trainer.driver.generation import environment_rewards
from rlt_trainer.environments.calculator import Calculator
from rlt_trainer.environments.conversation import Episode, converse
from rlt_trainer.environments.environment import Step
from rlt_trainer.environments.observation import observation_tokens
from rlt_trainer.environments.registry import load_environment
from rlt_trainer.rewards.sandbox import MAX_TIMEOUTS
from rlt_trainer.rollout.engine import Response, Sampling
from rlt_trainer.rollout.transformers_engine import TransformersEngine

TOKENIZER = byte_tokenizer()
EOS = 257


class Scripted:
    """An engine whose turns are known: a list of texts for each prompt, the next one at each call."""

    def __init__(self, *turns: list[str]) -> None:
        self._turns = {index: iter(texts) for index, texts in enumerate(turns)}
        self.asked: list[tuple[list[list[int]], list[int], list[int]]] = []

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: object = None,
        *,
        max_tokens: Sequence[int] | None = None,
        interrupt: object = None,
    ) -> list[Response]:
        assert max_tokens is not None
        self.asked.append(([list(prompt) for prompt in prompts], list(seeds), list(max_tokens)))
        return [self._turn(prompt[0] - ord("a"), most) for prompt, most in zip(prompts, max_tokens, strict=True)]

    def _turn(self, which: int, most: int) -> Response:
        tokens = [*next(self._turns[which]).encode(), EOS]
        reason: Any = "stop" if len(tokens) <= most else "length"
        tokens = tokens[:most]
        return Response(tuple(tokens), tuple(-0.5 for _ in tokens), finish_reason=reason)


class Echo:
    """Says what it hears, and pays for it. It raises at "raise", pays infinity at "inf" and is over at "end"."""

    opening: str | None = None

    def reset(self, prompt: Prompt) -> str | None:
        return self.opening

    def step(self, response: str) -> Step:
        if response == "raise":
            raise RuntimeError("no such luck")
        return f"[{response}]", float("inf") if response == "inf" else 0.5, response == "end"


class Opening(Echo):
    opening = "go"


def prompt(text: str = "a") -> Prompt:
    (made,) = tokenize([Example(text, "", "", "test")], TOKENIZER)
    return made


def talk(
    engine: Any,
    *prompts: Prompt,
    environment: Any = Echo,
    max_turns: int = 8,
    longest: int = 100,
    seconds: float = 60,
) -> list[Episode]:
    seeds = list(range(len(prompts)))
    return converse(
        engine,
        prompts,
        seeds,
        environment=environment,
        tokenizer=TOKENIZER,
        max_turns=max_turns,
        max_response_length=longest,
        timeout_seconds=seconds,
    )


def said(episode: Episode, **options: bool) -> str:
    return str(TOKENIZER.decode(list(episode.response.token_ids), **options))


def test_observations_are_tokens_that_the_policy_did_not_choose() -> None:
    (episode,) = talk(Scripted(["hi", "end"]), prompt())
    response = episode.response
    assert said(episode) == "hi<|eos|>[hi]end<|eos|>"
    assert response.chosen == (True,) * 3 + (False,) * 4 + (True,) * 4
    assert response.log_probs == (-0.5,) * 3 + (0.0,) * 4 + (-0.5,) * 4
    assert (response.num_turns, response.finish_reason) == (2, "stop")
    assert (episode.reward, episode.failure) == (1.0, None)


def test_the_engine_goes_on_from_the_very_tokens_that_it_gave() -> None:
    engine = Scripted(["\ufffd", "end"])
    (episode,) = talk(engine, prompt())
    (first, *_), (second, *_) = engine.asked
    assert second[0][: len(first[0])] == first[0] == [ord("a")]
    assert second[0][1:] == list(episode.response.token_ids[: len(second[0]) - 1])


def test_conversations_end_each_in_its_own_time() -> None:
    engine = Scripted(["end"], ["1", "2", "end"])
    short, long = talk(engine, prompt("a"), prompt("b"))
    assert (short.response.num_turns, long.response.num_turns) == (1, 3)
    assert [len(prompts) for prompts, *_ in engine.asked] == [2, 1, 1]


def test_every_turn_has_a_seed_of_its_own() -> None:
    engine = Scripted(["1", "2", "end"], ["1", "2", "end"])
    talk(engine, prompt("a"), prompt("b"))
    seeds = [seed for _, seeds, _ in engine.asked for seed in seeds]
    assert seeds[:2] == [0, 1]
    assert len(set(seeds)) == 6


def test_the_policy_speaks_no_more_than_max_turns() -> None:
    (episode,) = talk(Scripted(["1", "2", "3"]), prompt(), max_turns=2)
    assert said(episode) == "1<|eos|>[1]2<|eos|>"
    assert episode.reward == 1.0


@pytest.mark.parametrize("longest", range(1, 16))
def test_no_response_is_longer_than_wanted_nor_ends_with_an_observation(longest: int) -> None:
    engine = Scripted(["1", "22", "end"])
    (episode,) = talk(engine, prompt(), longest=longest)
    assert len(episode.response.token_ids) <= longest
    assert episode.response.chosen[-1]
    assert all(most > 0 for *_, rooms in engine.asked for most in rooms)
    assert (episode.response.finish_reason == "stop") == (longest >= 2 + 3 + 3 + 4 + 4)


@pytest.mark.parametrize(("turn", "words"), [("raise", "RuntimeError: no such luck"), ("inf", "gave the reward inf")])
def test_an_environment_that_fails_ends_its_own_conversation_only(turn: str, words: str) -> None:
    bad, good = talk(Scripted(["1", turn], ["1", "end"]), prompt("a"), prompt("b"))
    assert words in str(bad.failure)
    assert (bad.response.num_turns, bad.response.finish_reason) == (2, "abort")
    assert (good.failure, good.reward) == (None, 1.0)


class Hanging(Echo):
    """Hangs at "hang", for as long as the test lasts, and says which thread it lives in at "where"."""

    forever = threading.Event()

    def step(self, response: str) -> Step:
        if response == "hang":
            self.forever.wait()
        return super().step(response if response != "where" else str(threading.get_ident()))


@pytest.fixture
def hanging() -> Iterator[type[Hanging]]:
    Hanging.forever.clear()
    yield Hanging
    Hanging.forever.set()


def test_an_environment_that_hangs_ends_its_own_conversation_only(hanging: type[Hanging]) -> None:
    engine = Scripted(["where", "hang"], ["where", "where", "end"])
    bad, good = talk(engine, prompt("a"), prompt("b"), environment=hanging, seconds=0.5)
    assert bad.failure == "TimeoutError: it did not end within 0.5 s"
    assert bad.response.finish_reason == "abort"
    assert (good.failure, good.response.num_turns) == (None, 3)
    assert environment_rewards([bad, good]).isnan().tolist() == [True, False]  # type: ignore[union-attr]


def test_a_batch_whose_environments_all_hang_is_given_up(hanging: type[Hanging]) -> None:
    turns = [["hang"]] * (MAX_TIMEOUTS + 2)
    prompts = [prompt(chr(ord("a") + row)) for row in range(len(turns))]
    for episode in (episodes := talk(Scripted(*turns), *prompts, environment=hanging, seconds=0.05))[:MAX_TIMEOUTS]:
        assert "did not end within" in str(episode.failure)
    assert ["was not called" in str(episode.failure) for episode in episodes[MAX_TIMEOUTS:]] == [True, True]


def test_an_opening_stands_before_the_first_turn() -> None:
    (episode,) = talk(Scripted(["end"]), prompt(), environment=Opening)
    assert said(episode) == "goend<|eos|>"
    assert episode.response.chosen[:2] == (False, False)


def test_an_opening_that_leaves_no_room_is_a_failure() -> None:
    (episode,) = talk(Scripted(["end"]), prompt(), environment=Opening, longest=2)
    assert "opening leaves no room in 2 tokens" in str(episode.failure)


def test_a_calculator_helps_with_a_sum() -> None:
    turns = ["<calculator>2+3</calculator>", "#### 5"]
    (episode,) = talk(Scripted(turns), prompt(), environment=Calculator)
    text = said(episode, skip_special_tokens=True)
    assert text == "<calculator>2+3</calculator><result>5</result>#### 5"
    assert episode.reward is None


def test_a_real_engine_sees_in_each_turn_all_that_was_said(tiny_model: str) -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=24, stop_token_ids=tuple(range(200)))
    engine = TransformersEngine(tiny_model, dtype=torch.float32, device=torch.device("cpu"), sampling=sampling)
    episodes = talk(engine, prompt("a"), prompt("bc"), max_turns=3, longest=24)
    for text, episode in zip(("a", "bc"), episodes, strict=True):
        response = episode.response
        assert response.num_turns > 1
        again = engine.log_probs([[*text.encode(), *response.token_ids]])[0][len(text) - 1 :]
        drawn = zip(response.chosen, response.log_probs, again, strict=True)
        assert all(said == pytest.approx(now, abs=1e-4) for is_chosen, said, now in drawn if is_chosen)


def test_a_chat_goes_on_as_its_template_writes_it() -> None:
    question, turn = {"role": "user", "content": "q"}, [*b"x", EOS]
    whole = [question, {"role": "assistant", "content": "x"}, {"role": "user", "content": "o"}]
    begin = TOKENIZER(chat_text([question], TOKENIZER), add_special_tokens=False)["input_ids"]
    observed = observation_tokens("o", turn, TOKENIZER, is_chat=True)
    assert TOKENIZER.decode([*begin, *turn, *observed]) == chat_text(whole, TOKENIZER)


def test_a_template_with_more_behind_the_end_of_a_turn_is_kept_whole() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|eos|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    observed = observation_tokens("o", [EOS], TOKENIZER, is_chat=True, chat_template=template)
    assert TOKENIZER.decode(observed) == "\n<|user|>\no<|eos|>\n<|assistant|>\n"


def test_a_users_own_environment_is_found_in_its_config_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rlt_test_game.py").write_text("class Game:\n    def reset(self, prompt): return 'hello'\n")
    monkeypatch.setattr(user_functions, "FUNCTIONS_DIRECTORY", str(tmp_path))
    made = load_environment(MultiTurn(environment="rlt_test_game:Game", config_map="mine"))()
    assert made.reset(prompt()) == "hello"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("abacus", "there is no such environment. Take calculator, or module:Class"),
        ("no_such_module:Game", "cannot be imported .No module named 'no_such_module'"),
        ("json:Game", "is not there. json "),
    ],
)
def test_an_unknown_environment_is_refused(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_environment(MultiTurn(environment=name))
