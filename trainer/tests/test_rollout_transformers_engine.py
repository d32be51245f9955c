"""The sampler on transformers against a forward pass."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_calls import EngineCalls
from torch.testing import assert_close

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.model import load_model
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.transformers_engine import TransformersEngine, keep_min_p, keep_top_k, keep_top_p, sample

PROMPTS = [[50, 51, 52], [60], [70, 71, 72, 73]]
SEEDS = [1, 2, 3]


def sampler(files: str, *, stop: int = -1, top_p: float = 1.0) -> EngineCalls:
    sampling = Sampling(temperature=0.8, top_p=top_p, max_tokens=6, stop_token_ids=(stop,))
    return EngineCalls(TransformersEngine(files, dtype=torch.float32, device=torch.device("cpu")), sampling)


def test_log_probs_equal_a_forward_pass_without_cache(tiny_model: str) -> None:
    responses = sampler(tiny_model).generate(PROMPTS, SEEDS)
    sequences = Sequences.pad(PROMPTS, [response.token_ids for response in responses], pad_token_id=0)
    with torch.no_grad():
        expected, _ = response_log_probs(load_model(tiny_model, torch.float32), sequences, temperature=0.8)
    assert_close(torch.tensor([response.log_probs for response in responses]), expected, atol=1e-5, rtol=0)


def test_a_float32_head_computes_the_logits_of_the_trainers(tiny_model: str) -> None:
    """In bfloat16, the rest of the model has the same rounding in both."""
    engine = TransformersEngine(tiny_model, dtype=torch.bfloat16, device=torch.device("cpu"), float32_head=True)
    found = torch.tensor(asyncio.run(engine.log_probs([[50, 51, 52, 53]])))
    model = load_model(tiny_model, torch.bfloat16)
    sequences = Sequences.pad([[50]], [[51, 52, 53]], pad_token_id=0)
    with torch.no_grad():
        cast, plain = (
            response_log_probs(model, sequences, temperature=1.0, float32_head=each)[0] for each in (True, False)
        )
    assert_close(found, cast, atol=1e-5, rtol=0)
    assert (found - plain).abs().max() > 1e-4


def test_padding_changes_no_log_prob(tiny_model: str) -> None:
    model = load_model(tiny_model, torch.float32)
    responses = [[9, 8], [7], [6, 5]]
    with torch.no_grad():
        together, _ = response_log_probs(model, Sequences.pad(PROMPTS, responses, pad_token_id=3), temperature=1.0)
        for row, (prompt, response) in enumerate(zip(PROMPTS, responses, strict=True)):
            alone, _ = response_log_probs(model, Sequences.pad([prompt], [response], pad_token_id=3), temperature=1.0)
            assert_close(together[row, : len(response)], alone[0], atol=1e-5, rtol=0)


def test_a_response_depends_only_on_its_seed(tiny_model: str) -> None:
    engine = sampler(tiny_model)
    together = engine.generate(PROMPTS, SEEDS)
    alone = [engine.generate([prompt], [seed])[0] for prompt, seed in zip(PROMPTS, SEEDS, strict=True)]
    assert [response.token_ids for response in together] == [response.token_ids for response in alone]
    assert engine.generate(PROMPTS, [4, 5, 6]) != together


def test_a_response_ends_with_the_stop_token(tiny_model: str) -> None:
    longest = sampler(tiny_model).generate(PROMPTS, SEEDS)
    stop = longest[0].token_ids[2]
    responses = sampler(tiny_model, stop=stop).generate(PROMPTS, SEEDS)
    cut = longest[0].token_ids.index(stop) + 1
    assert responses[0].token_ids == longest[0].token_ids[:cut]
    assert responses[0].log_probs == pytest.approx(longest[0].log_probs[:cut], abs=1e-6)
    assert all(stop not in response.token_ids[:-1] for response in responses)


def test_top_p_keeps_the_smallest_set_with_that_probability() -> None:
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log()
    assert keep_top_p(logits, 0.6).isfinite().tolist() == [[False, True, True]]
    assert keep_top_p(logits, 0.5).isfinite().tolist() == [[False, True, False]]


def test_samples_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.7, 0.2, 0.1])
    generators = [torch.Generator().manual_seed(seed) for seed in range(4000)]
    tokens = sample(probabilities.log().expand(4000, 3), generators)
    assert_close(tokens.bincount(minlength=3) / 4000, probabilities, atol=0.03, rtol=0)


def test_an_update_of_the_weights_changes_log_probs(tiny_model: str) -> None:
    engine = sampler(tiny_model)
    other = load_model(tiny_model, torch.float32)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    before = engine.log_probs(PROMPTS)
    engine.update_weights(other.named_parameters())
    assert engine.log_probs(PROMPTS) != before
    with torch.no_grad():
        sequences = Sequences.pad([PROMPTS[0][:1]], [PROMPTS[0][1:]], pad_token_id=0)
        expected, _ = response_log_probs(other, sequences, temperature=1.0)
    assert_close(torch.tensor(engine.log_probs(PROMPTS)[0]), expected[0], atol=1e-5, rtol=0)


def test_top_k_keeps_the_most_probable_tokens() -> None:
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log()
    assert keep_top_k(logits, 1).isfinite().tolist() == [[False, True, False]]
    assert keep_top_k(logits, 2).isfinite().tolist() == [[False, True, True]]


def test_min_p_keeps_tokens_near_the_most_probable_one() -> None:
    logits = torch.tensor([[0.2, 0.5, 0.3]]).log()
    assert keep_min_p(logits, 0.7).isfinite().tolist() == [[False, True, False]]
    assert keep_min_p(logits, 0.5).isfinite().tolist() == [[False, True, True]]
    assert keep_min_p(logits, 0.3).isfinite().all()


@pytest.mark.parametrize("changes", [{"top_k": 1}, {"min_p": 0.999999}, {"temperature": 0.0}])
def test_top_k_1_and_temperature_0_are_greedy(tiny_model: str, changes: dict[str, Any]) -> None:
    engine = sampler(tiny_model)
    sampling = replace(Sampling(temperature=0.8, top_p=1.0, max_tokens=6, stop_token_ids=()), **changes)
    responses = engine.generate(PROMPTS, SEEDS, sampling)
    assert responses == engine.generate(PROMPTS, [9, 9, 9], sampling)
    tokens = torch.tensor([[*PROMPTS[0], *responses[0].token_ids]])
    with torch.no_grad():
        logits = load_model(tiny_model, torch.float32)(input_ids=tokens).logits
    assert logits[0, 2:-1].argmax(-1).tolist() == list(responses[0].token_ids)


def test_max_tokens_may_differ_between_requests(tiny_model: str) -> None:
    engine = sampler(tiny_model)
    whole = engine.generate(PROMPTS, SEEDS)
    limits = [1, 4, 6]
    responses = engine.generate(PROMPTS, SEEDS, max_tokens=limits)
    assert [each.token_ids for each in responses] == [each.token_ids[:n] for each, n in zip(whole, limits, strict=True)]
    assert [each.finish_reason for each in responses] == ["length"] * 3
