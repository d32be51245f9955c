"""Stop strings in vLLM, and vLLM's detokenizer as the oracle of the other engine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from in_process import Pair, build_vllm_config

from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rollout.stop_strings import ends_with_stop_string

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
TOKENIZER = build_byte_tokenizer()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    run = tmp_path_factory.mktemp("run")
    config = build_vllm_config(run, max_response_length=12, stop=["not in any response"])
    pair = Pair(config, PROBES)
    yield pair
    pair.close()


@pytest.mark.slow
def test_the_stop_string_stays_in_the_response_with_its_log_probs(pair: Pair) -> None:
    assert pair.sync() < 1e-4
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    free = replace(pair.engines.sampling, stop_token_ids=())
    longest = pair.generate(prompts, [1, 2, 3, 4], free)
    tokens = list(longest[0].token_ids)
    end = next(number for number, token in enumerate(tokens) if 32 < token < 127) + 1
    stopping = replace(free, stop=("unlikely", chr(tokens[end - 1])))
    response = pair.generate(prompts, [1, 2, 3, 4], stopping)[0]
    assert list(response.token_ids) == tokens[:end]
    assert list(response.log_probs) == pytest.approx(list(longest[0].log_probs[:end]), abs=1e-4)
    assert response.finish_reason == "stop"
    at_limit = pair.generate(prompts, [1, 2, 3, 4], replace(stopping, max_tokens=end))[0]
    assert (list(at_limit.token_ids), at_limit.finish_reason) == (tokens[:end], "stop")


@pytest.mark.slow
def test_both_engines_stop_at_the_same_token() -> None:
    """Random tokens of a small alphabet with parts of characters and special tokens."""
    from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

    generator = random.Random(20261127)
    alphabet = [*b"ab ", *"\u20ac".encode(), *"\u00e9".encode(), 256, 257]
    stops = ["ab", " a", "b ", "\u20ac", "\u00e9a", "a<|eos|>", "bb\u00e9"]
    ends = []
    for _ in range(300):
        stop = generator.sample(stops, generator.randint(1, 3))
        tokens = generator.choices(alphabet, k=40)
        parameters = SimpleNamespace(
            stop=stop,
            min_tokens=0,
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            spaces_between_special_tokens=True,
        )
        request: Any = SimpleNamespace(sampling_params=parameters, request_id="1", prompt_token_ids=[97, 98])
        detokenizer = FastIncrementalDetokenizer(TOKENIZER, request)
        expected = next((n for n, token in enumerate(tokens) if detokenizer.update([token], False)), None)
        found = next((n for n in range(40) if ends_with_stop_string(tokens[: n + 1], stop, TOKENIZER)), None)
        assert found == expected, (tokens, stop)
        ends.append(found)
    assert len(set(ends)) > 10
