"""Stop strings: where a response ends, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from engine_calls import EngineCalls
from in_process import train

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.byte_tokenizer import EOS, build_byte_tokenizer
from rlt_trainer.rollout.build_engine import build_engine, build_sampling
from rlt_trainer.rollout.stop_strings import ends_with_stop_string

PROMPTS = [[50, 51, 52], [60], [70, 71, 72, 73]]
SEEDS = [1, 2, 3]
TOKENIZER = build_byte_tokenizer()


def find_end(text: str, stop: list[str]) -> int | None:
    """Return the number of tokens (bytes) of `text` up to the first one that completes a stop string."""
    tokens = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    ends = (end for end in range(1, len(tokens) + 1) if ends_with_stop_string(tokens[:end], stop, TOKENIZER))
    return next(ends, None)


@pytest.mark.parametrize(
    ("text", "stop", "end"),
    [
        ("4</answer>...", ["</answer>"], 10),
        ("4</answ", ["</answer>"], None),
        ("a\n\nb", ["\n\n"], 3),
        ("a b", [" "], 2),
        ("xyz", ["z", "xy"], 2),  # the one that is complete first
        ("prix 5 \u20ac.", ["\u20ac"], 10),  # three bytes
        (f"a{EOS}b", [EOS], 2),
        ("." * 500 + "stop.", ["stop"], 504),
    ],
)
def test_a_response_ends_with_the_token_that_completes_a_stop_string(text: str, stop: list[str], end: int) -> None:
    assert find_end(text, stop) == end


def build_calls(files: str, make_config: Callable[..., TrainingConfig], *stop: str) -> EngineCalls:
    config = make_config(
        rollout={"engine": "transformers", "temperature": 0.8, "stop": list(stop)}, data={"maxResponseLength": 12}
    )
    engine = build_engine(config, files=files, device=torch.device("cpu"))
    return EngineCalls(engine, build_sampling(config, ()))


def test_the_stop_string_stays_in_the_response_with_its_log_probs(
    tiny_model: str, make_config: Callable[..., TrainingConfig]
) -> None:
    longest = build_calls(tiny_model, make_config).generate(PROMPTS, SEEDS)[0]
    tokens = list(longest.token_ids)
    end = next(number for number, token in enumerate(tokens) if 32 < token < 127) + 1
    calls = build_calls(tiny_model, make_config, "unlikely", chr(tokens[end - 1]))
    response = calls.generate(PROMPTS, SEEDS)[0]
    assert list(response.token_ids) == tokens[:end]
    assert list(response.log_probs) == pytest.approx(list(longest.log_probs[:end]), abs=1e-5)
    assert all(response.chosen)
    assert response.finish_reason == "stop"
    at_limit = calls.generate(PROMPTS, SEEDS, max_tokens=[end] * 3)[0]
    assert (list(at_limit.token_ids), at_limit.finish_reason) == (tokens[:end], "stop")


def test_a_request_of_an_agent_has_its_own_stop_strings(
    tiny_model: str, make_config: Callable[..., TrainingConfig]
) -> None:
    rollout = {"engine": "transformers", "multiTurn": {"agent": {"name": "my_agent:solve"}}}
    config = make_config(rollout=rollout, data={"maxResponseLength": 12})
    engine = build_engine(config, files=tiny_model, device=torch.device("cpu"))
    calls = EngineCalls(engine, build_sampling(config, ()))
    longest = calls.generate(PROMPTS, SEEDS)[0]
    end = next(number for number, token in enumerate(longest.token_ids) if 32 < token < 127) + 1
    sampling = replace(calls.sampling, stop=(chr(longest.token_ids[end - 1]),))
    assert list(calls.generate(PROMPTS, SEEDS, sampling)[0].token_ids) == list(longest.token_ids[:end])


def test_a_stop_string_in_the_prompt_has_no_effect(tiny_model: str, make_config: Callable[..., TrainingConfig]) -> None:
    calls = build_calls(tiny_model, make_config, "end")
    responses = calls.generate([[*prompt, *b"end"] for prompt in PROMPTS], SEEDS, max_tokens=[4] * 3)
    assert [each.finish_reason for each in responses] == ["length"] * 3


def test_greedy_responses_have_the_same_stop_strings(make_config: Callable[..., TrainingConfig]) -> None:
    sampling = build_sampling(make_config(rollout={"stop": ["</answer>", "\n\n"]}), ())
    assert sampling.stop == sampling.greedy().stop == ("</answer>", "\n\n")


def test_the_trainer_has_the_log_probs_of_stopped_responses(make_config: Callable[..., TrainingConfig]) -> None:
    stop = [chr(code) for code in range(ord("a"), ord("a") + 16)]
    (step,) = train(
        make_config(
            workers=1,
            data={"maxResponseLength": 40},
            training={"totalSteps": 1, "ppoMiniBatchSize": 8},
            rollout={"stop": stop},
            rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
            algorithm={"maskTruncatedCompletions": True},
        )
    )
    assert step["response_length/mean"] < 25  # one of 16 characters in 262 tokens, within 40: 15 on average
    assert step["training/rollout_probs_diff_max"] < 1e-5
    assert step["actor/grad_norm"] > 0
