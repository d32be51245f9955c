"""Turns and observations form one response of tokens, and tokens of observations are marked as not chosen."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_calls import EngineCalls
from process_end import await_end

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.algorithms import user_functions
from rlt_trainer.batches.response import Response
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.encoding import chat_text, tokenize
from rlt_trainer.data.prompt import Example, Prompt
from rlt_trainer.driver.batch_builder import report_failures
from rlt_trainer.driver.rollouts import find_environment_outcome
from rlt_trainer.environments.conversation import ConversationLimits, Episode, converse
from rlt_trainer.environments.environment import load_environment
from rlt_trainer.environments.observation import tokenize_observation
from rlt_trainer.environments.processes import EnvironmentProcesses
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards.outcome import Failure
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.sampler import Sampler
from rlt_trainer.rollout.transformers_engine import TransformersEngine

TOKENIZER = build_byte_tokenizer()
EOS = 257
OBSERVATION = [{"role": "user", "content": "o"}]
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=100, stop_token_ids=(EOS,))


class Scripted:
    """A sampler with fixed turns: a list of texts for each prompt, one text for each call."""

    def __init__(self, *turns: list[str]) -> None:
        self._turns = {index: iter(texts) for index, texts in enumerate(turns)}
        self.calls: list[tuple[list[int], int, int]] = []

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        assert max_tokens is not None
        self.calls.append((list(prompt), seed, max_tokens))
        return self._turn(prompt[0] - ord("a"), max_tokens)

    def _turn(self, index: int, limit: int) -> Response:
        tokens = [*next(self._turns[index]).encode(), EOS]
        reason: Any = "stop" if len(tokens) <= limit else "length"
        tokens = tokens[:limit]
        return Response(tuple(tokens), tuple(-0.5 for _ in tokens), finish_reason=reason)


def prompt(text: str = "a") -> Prompt:
    (made,) = tokenize([Example(text, "", "", "test")], TOKENIZER)
    return made


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of environments can import scripted_environments."""
    modules = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(modules))


Processes = Callable[..., EnvironmentProcesses]


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Builds the processes of an environment from scripted_environments."""
    made: list[EnvironmentProcesses] = []

    def build(environment: str = "Echo", *, timeout_s: float = 60) -> EnvironmentProcesses:
        name = environment if environment == "calculator" else f"scripted_environments:{environment}"
        made.append(EnvironmentProcesses(MultiTurn(environment=name, timeout_seconds=timeout_s)))
        return made[-1]

    yield build
    for each in made:
        each.close()


def talk(
    sampler: Sampler,
    processes: EnvironmentProcesses,
    *prompts: Prompt,
    max_turns: int = 8,
    max_length: int = 100,
    sampling: Sampling = SAMPLING,
) -> list[Episode]:
    async def run(prompt: Prompt, seed: int) -> Episode:
        return await converse(
            sampler,
            processes.open_session(prompt),
            prompt,
            seed=seed,
            sampling=sampling,
            tokenizer=TOKENIZER,
            limits=ConversationLimits(max_turns, max_length),
        )

    async def run_all() -> list[Episode]:
        return await asyncio.gather(*(run(prompt, seed) for seed, prompt in enumerate(prompts)))

    return asyncio.run(run_all())


def text_of(episode: Episode, **options: bool) -> str:
    return str(TOKENIZER.decode(list(episode.response.token_ids), **options))


def test_observations_are_tokens_that_the_policy_did_not_choose(processes: Processes) -> None:
    (episode,) = talk(Scripted(["hi", "end"]), processes(), prompt())
    response = episode.response
    assert text_of(episode) == "hi<|eos|>[hi]end<|eos|>"
    assert list(response.chosen) == [True] * 3 + [False] * 4 + [True] * 4
    assert list(response.log_probs) == [-0.5] * 3 + [0.0] * 4 + [-0.5] * 4
    assert (response.num_turns, response.finish_reason) == (2, "stop")
    assert (episode.reward, episode.failure) == (1.0, None)


def test_the_engine_continues_from_the_tokens_that_it_generated(processes: Processes) -> None:
    engine = Scripted(["\ufffd", "end"])
    (episode,) = talk(engine, processes(), prompt())
    (first, *_), (second, *_) = engine.calls
    assert second[: len(first)] == first == [ord("a")]
    assert second[1:] == list(episode.response.token_ids[: len(second) - 1])


def test_conversations_end_independently(processes: Processes) -> None:
    engine = Scripted(["end"], ["1", "2", "end"])
    short, long = talk(engine, processes(), prompt("a"), prompt("b"))
    assert (short.response.num_turns, long.response.num_turns) == (1, 3)
    assert len(engine.calls) == 4


def test_every_turn_has_a_different_seed(processes: Processes) -> None:
    engine = Scripted(["1", "2", "end"], ["1", "2", "end"])
    talk(engine, processes(), prompt("a"), prompt("b"))
    seeds = {seed for _, seed, _ in engine.calls}
    assert seeds > {0, 1}
    assert len(seeds) == 6


def test_replies_of_the_wrong_form_are_failures(processes: Processes) -> None:
    number, text = talk(Scripted(["number"], ["text"]), processes(), prompt("a"), prompt("b"))
    assert number.failure == "the observation 7 is not text"
    assert "instead of (observation, reward or None, whether it has ended)" in str(text.failure)


def test_a_conversation_has_at_most_max_turns(processes: Processes) -> None:
    (episode,) = talk(Scripted(["1", "2", "3"]), processes(), prompt(), max_turns=2)
    assert text_of(episode) == "1<|eos|>[1]2<|eos|>"
    assert episode.reward == 1.0


@pytest.mark.parametrize("max_length", range(1, 16))
def test_no_response_exceeds_the_maximum_length_or_ends_with_an_observation(
    processes: Processes, max_length: int
) -> None:
    engine = Scripted(["1", "22", "end"])
    (episode,) = talk(engine, processes(), prompt(), max_length=max_length)
    assert len(episode.response.token_ids) <= max_length
    assert episode.response.chosen[-1]
    assert all(limit > 0 for *_, limit in engine.calls)
    assert (episode.response.finish_reason == "stop") == (max_length >= 2 + 3 + 3 + 4 + 4)


@pytest.mark.parametrize(
    ("turn", "message"), [("raise", "RuntimeError: no such luck"), ("inf", "returned the reward inf")]
)
def test_an_environment_that_fails_ends_only_its_conversation(processes: Processes, turn: str, message: str) -> None:
    bad, good = talk(Scripted(["1", turn], ["1", "end"]), processes(), prompt("a"), prompt("b"))
    assert message in str(bad.failure)
    assert (bad.response.num_turns, bad.response.finish_reason) == (2, "abort")
    assert (good.failure, good.reward) == (None, 1.0)


def test_an_environment_that_hangs_ends_only_its_conversation(processes: Processes) -> None:
    engine = Scripted(["where", "hang"], ["where", "where", "end"])
    bad, good = talk(engine, processes(timeout_s=3), prompt("a"), prompt("b"))
    assert bad.failure == "TimeoutError: it did not end within 3 s"
    assert bad.response.finish_reason == "abort"
    assert (good.failure, good.response.num_turns) == (None, 3)
    assert find_environment_outcome(bad) == {"environment": Failure("environment", bad.failure)}
    assert find_environment_outcome(good) == {"environment": good.reward}
    (hung, *_), (where, again) = (re.findall("[0-9]+", text_of(episode)) for episode in (bad, good))
    assert where == again != hung
    await_end(int(hung))


def test_an_environment_whose_process_exits_ends_only_its_conversation(processes: Processes) -> None:
    bad, good = talk(Scripted(["exit"], ["1", "end"]), processes(), prompt("a"), prompt("b"))
    assert (bad.failure, good.failure, good.reward) == ("its process exited", None, 1.0)


def test_a_batch_of_which_all_conversations_failed_ends_the_run_with_the_cause(processes: Processes) -> None:
    bad, good = map(find_environment_outcome, talk(Scripted(["raise"], ["end"]), processes(), prompt("a"), prompt("b")))
    report_failures([bad, good])
    with pytest.raises(TrainingError, match=r"All 2 conversations of the batch failed: RuntimeError: no such luck\. C"):
        report_failures([bad, bad])


def test_child_processes_of_an_environment_end_with_its_conversation(processes: Processes) -> None:
    (episode,) = talk(Scripted(["spawn", "end"]), processes(), prompt())
    (child,) = re.findall("[0-9]+", text_of(episode))
    await_end(int(child))


def test_a_server_of_environments_that_died_is_started_again(processes: Processes) -> None:
    ours = processes()
    talk(Scripted(["end"]), ours, prompt())
    assert ours._server._process is not None
    ours._server._process.kill()
    ours._server._process.wait()
    (episode,) = talk(Scripted(["end"]), ours, prompt())
    assert episode.failure is None


def test_an_environment_gets_the_whole_prompt(processes: Processes) -> None:
    given = replace(prompt(), ground_truth="7", extra_info={"bonus": 2})
    (episode,) = talk(Scripted(["prompt", "end"]), processes(), given)
    assert "72" in text_of(episode)


def test_a_turn_of_32_conversations_with_a_slow_environment_is_not_32_turns(processes: Processes) -> None:
    """A lock-step loop with one call after the other takes 32 times as long."""
    slow = processes("Slow")
    talk(Scripted(["1"]), slow, prompt(), max_turns=1)

    def measure(conversations: int) -> float:
        start = time.monotonic()
        talk(Scripted(["1"] * 6 * conversations), slow, *[prompt()] * conversations, max_turns=6)
        return time.monotonic() - start

    assert measure(32) < 10 * measure(1)


def test_a_first_observation_precedes_the_first_turn(processes: Processes) -> None:
    (episode,) = talk(Scripted(["end"]), processes("Opening"), prompt())
    assert text_of(episode) == "goend<|eos|>"
    assert list(episode.response.chosen[:2]) == [False, False]


def test_a_first_observation_that_leaves_no_token_for_a_turn_is_a_failure(processes: Processes) -> None:
    (episode,) = talk(Scripted(["end"]), processes("Opening"), prompt(), max_length=2)
    assert "first observation leaves no token of 2 for a turn" in str(episode.failure)


def test_results_of_the_calculator_are_observations(processes: Processes) -> None:
    turns = ["<calculator>2+3</calculator>", "#### 5"]
    (episode,) = talk(Scripted(turns), processes("calculator"), prompt())
    text = text_of(episode, skip_special_tokens=True)
    assert text == "<calculator>2+3</calculator><result>5</result>#### 5"
    assert episode.reward is None


def test_a_real_engine_generates_each_turn_from_all_earlier_tokens(processes: Processes, tiny_model: str) -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=24, stop_token_ids=tuple(range(200)))
    engine = EngineCalls(TransformersEngine(tiny_model, dtype=torch.float32, device=torch.device("cpu")), sampling)
    episodes = talk(engine, processes(), prompt("a"), prompt("bc"), max_turns=3, max_length=24, sampling=sampling)
    for text, episode in zip(("a", "bc"), episodes, strict=True):
        response = episode.response
        assert response.num_turns > 1
        recomputed = engine.log_probs([[*text.encode(), *response.token_ids]])[0][len(text) - 1 :]
        tokens = zip(response.chosen, response.log_probs, recomputed, strict=True)
        assert all(drawn == pytest.approx(now, abs=1e-4) for is_chosen, drawn, now in tokens if is_chosen)


def test_a_chat_continues_as_its_template_renders_it() -> None:
    question = {"role": "user", "content": "q"}
    turn = [*b"x", EOS]
    whole = [question, {"role": "assistant", "content": "x"}, {"role": "user", "content": "o"}]
    begin = TOKENIZER(chat_text([question], TOKENIZER), add_special_tokens=False)["input_ids"]
    observed = tokenize_observation(OBSERVATION, turn, TOKENIZER, is_chat=True)
    assert TOKENIZER.decode([*begin, *turn, *observed]) == chat_text(whole, TOKENIZER)


def test_template_text_after_the_end_of_a_turn_is_kept() -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|eos|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    )
    observed = tokenize_observation(OBSERVATION, [EOS], TOKENIZER, is_chat=True, chat_template=template)
    assert TOKENIZER.decode(observed) == "\n<|user|>\no<|eos|>\n<|assistant|>\n"


def test_a_user_defined_environment_is_loaded_from_a_config_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rlt_test_game.py").write_text("class Game:\n    def reset(self, prompt): return 'hello'\n")
    monkeypatch.setattr(user_functions, "FUNCTIONS_DIRECTORY", str(tmp_path))
    made = load_environment(MultiTurn(environment="rlt_test_game:Game", config_map="mine"))()
    assert made.reset(prompt()) == "hello"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("abacus", "no such environment. Use calculator, or module:Class"),
        ("no_such_module:Game", "cannot be imported .No module named 'no_such_module'"),
        ("json:Game", "does not exist. Functions in json "),
    ],
)
def test_an_unknown_environment_is_rejected(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_environment(MultiTurn(environment=name))
