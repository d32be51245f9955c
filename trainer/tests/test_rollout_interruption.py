"""Weight updates, aborts and pauses during generation."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from threading import Event

import pytest
import torch
from engine_calls import EngineCalls
from torch import Tensor, nn

from rlt_trainer.batches.response import Response
from rlt_trainer.policy.model import load_model
from rlt_trainer.rollout.engine import Sampling, derive_seed
from rlt_trainer.rollout.transformers_engine import TransformersEngine

PROMPTS = [[50, 51, 52], [60], [70, 71, 72, 73]]
SEEDS = [1, 2, 3]
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=8, stop_token_ids=())
ENDLESS = replace(SAMPLING, max_tokens=10**6)


class Observed(TransformersEngine):
    """Waits in its forward pass number `stop` until the caller interrupts it."""

    stop = 10**6

    def observe(self) -> None:
        forward = self._model.forward
        calls = 0
        self.reached = Event()

        def counted(**inputs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == self.stop:
                self.reached.set()
                assert self._interrupt.wait(60)
            return forward(**inputs)

        self._model.forward = counted


@pytest.fixture
def sampler(tiny_model: str) -> Iterator[EngineCalls]:
    engine = Observed(tiny_model, dtype=torch.float32, device=torch.device("cpu"))
    engine.observe()
    calls = EngineCalls(engine, SAMPLING)
    yield calls
    calls.close()


def start_until(sampler: EngineCalls, forward: int) -> Future[list[Response]]:
    """Start requests. Return in forward pass number `forward` of the engine."""
    assert isinstance(sampler.engine, Observed)
    sampler.engine.stop = forward
    _, responses = sampler.start(PROMPTS, SEEDS)
    assert sampler.engine.reached.wait(60)
    return responses


def load_scaled_model(files: str) -> nn.Module:
    model = load_model(files, torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    return model


def log_probs(model: nn.Module, prompt: list[int], response: Response) -> list[float]:
    tokens = torch.tensor([[*prompt, *response.token_ids]])
    with torch.no_grad():
        distribution = torch.log_softmax(model(input_ids=tokens).logits[0].float(), -1)
    values: Tensor = distribution[len(prompt) - 1 : -1].gather(-1, tokens[0, len(prompt) :, None])
    return values.squeeze(-1).tolist()


def test_an_aborted_response_has_the_tokens_so_far(sampler: EngineCalls) -> None:
    whole = sampler.generate(PROMPTS, SEEDS)
    numbers, responses = sampler.start(PROMPTS, SEEDS, ENDLESS)
    sampler.call(sampler.engine.abort(numbers))
    for part, response in zip(responses.result(60), whole, strict=True):
        assert part.finish_reason == "abort"
        shared = min(len(part.token_ids), 8)
        assert part.token_ids[:shared] == response.token_ids[:shared]


def test_a_paused_engine_continues_where_it_was(sampler: EngineCalls) -> None:
    whole = sampler.generate(PROMPTS, SEEDS)
    responses = start_until(sampler, 8 + 3)
    sampler.call(sampler.engine.pause())
    assert not responses.done()
    sampler.call(sampler.engine.resume())
    for part, response in zip(responses.result(60), whole, strict=True):
        assert (part.token_ids, part.finish_reason) == (response.token_ids, "length")
        assert part.log_probs == pytest.approx(response.log_probs, abs=1e-5)


def test_requests_that_arrive_during_generation_join_it(sampler: EngineCalls) -> None:
    alone = sampler.generate(PROMPTS[:1], SEEDS[:1])
    numbers, endless = sampler.start(PROMPTS[1:], SEEDS[1:], ENDLESS)
    (response,) = sampler.generate(PROMPTS[:1], SEEDS[:1])
    assert response.token_ids == alone[0].token_ids
    assert not endless.done()
    sampler.call(sampler.engine.abort(numbers))


def test_after_an_update_each_token_has_the_log_prob_of_the_weights_that_sampled_it(
    sampler: EngineCalls, tiny_model: str
) -> None:
    old = load_model(tiny_model, torch.float32)
    new = load_scaled_model(tiny_model)
    responses = start_until(sampler, 3)
    sampler.update_weights(new.named_parameters())
    for prompt, response in zip(PROMPTS, responses.result(60), strict=True):
        assert len(response.token_ids) == 8
        assert response.finish_reason == "length"
        assert response.log_probs[:3] == pytest.approx(log_probs(old, prompt, response)[:3], abs=1e-5)
        assert response.log_probs[3:] == pytest.approx(log_probs(new, prompt, response)[3:], abs=1e-5)


def test_a_continuation_has_a_separate_seed() -> None:
    seeds = {derive_seed(seed, generated) for seed in range(50) for generated in range(1, 50)}
    assert len(seeds) == 50 * 49
    assert derive_seed(7, 0) == 7
