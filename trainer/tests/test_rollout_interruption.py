"""Weight updates during generation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from torch import Tensor, nn

from rlt_trainer.batches.response import Response
from rlt_trainer.policy.model import load_model
from rlt_trainer.rollout.engine import Sampling, derive_seed
from rlt_trainer.rollout.interruption import InterruptibleEngine, join_responses
from rlt_trainer.rollout.transformers_engine import TransformersEngine

PROMPTS = [[50, 51, 52], [60], [70, 71, 72, 73]]
SEEDS = [1, 2, 3]
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=8, stop_token_ids=())


def sampler(files: str) -> TransformersEngine:
    return TransformersEngine(files, dtype=torch.float32, device=torch.device("cpu"), sampling=SAMPLING)


class Interrupting(Event):
    """An event that is set after `tokens` calls of is_set, which means after `tokens` tokens."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self._left = tokens

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.mark.parametrize("tokens", [0, 3])
def test_an_interrupted_response_has_the_tokens_so_far(tiny_model: str, tokens: int) -> None:
    engine = sampler(tiny_model)
    whole = engine.generate(PROMPTS, SEEDS)
    parts = engine.generate(PROMPTS, SEEDS, interrupt=Interrupting(tokens))
    assert [part.finish_reason for part in parts] == ["abort"] * 3
    assert [part.token_ids for part in parts] == [response.token_ids[:tokens] for response in whole]


def test_parts_are_joined_to_one_response() -> None:
    start = Response((1, 2), (-1.0, -2.0), finish_reason="abort")
    whole = join_responses(start, Response((3,), (-3.0,), finish_reason="length"))
    assert whole == Response((1, 2, 3), (-1.0, -2.0, -3.0), (True,) * 3, 1, "length")


def test_a_continuation_has_a_separate_seed() -> None:
    seeds = {derive_seed(seed, generated) for seed in range(50) for generated in range(1, 50)}
    assert len(seeds) == 50 * 49
    assert derive_seed(7, 0) == 7


class Observed(TransformersEngine):
    """Signals after the first tokens, and then waits for the interrupt, so that an update occurs in between."""

    def __init__(self, files: str) -> None:
        super().__init__(files, dtype=torch.float32, device=torch.device("cpu"), sampling=SAMPLING)
        self.started = Event()
        self.rounds: list[list[int]] = []

    def generate(  # type: ignore[override]
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling,
        *,
        interrupt: Event,
        **kw: list[int],
    ) -> list[Response]:
        self.rounds.append([len(prompt) for prompt in prompts])
        if len(self.rounds) == 1:
            start = super().generate(prompts, seeds, sampling, max_tokens=[3] * len(prompts))
            self.started.set()
            assert interrupt.wait(60)
            return [Response(each.token_ids, each.log_probs, finish_reason="abort") for each in start]
        return super().generate(prompts, seeds, sampling, interrupt=interrupt, **kw)


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


def test_after_an_interruption_each_token_has_the_log_prob_of_the_weights_that_sampled_it(tiny_model: str) -> None:
    old, new = load_model(tiny_model, torch.float32), load_scaled_model(tiny_model)
    inner = Observed(tiny_model)
    engine = InterruptibleEngine(inner, SAMPLING)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(engine.generate, PROMPTS, SEEDS)
        assert inner.started.wait(60)
        engine.update_weights(new.named_parameters())
        responses = running.result(60)
    assert inner.rounds == [[3, 1, 4], [6, 4, 7]]  # the second round includes the three tokens so far
    for prompt, response in zip(PROMPTS, responses, strict=True):
        assert len(response.token_ids) == 8
        assert response.finish_reason == "length"
        assert response.log_probs[:3] == pytest.approx(log_probs(old, prompt, response)[:3], abs=1e-5)
        assert response.log_probs[3:] == pytest.approx(log_probs(new, prompt, response)[3:], abs=1e-5)


def test_generation_continues_after_a_failed_update(tiny_model: str) -> None:
    def broken() -> Iterable[tuple[str, Tensor]]:
        raise RuntimeError("sender lost")
        yield

    engine = InterruptibleEngine(sampler(tiny_model), SAMPLING)
    with pytest.raises(RuntimeError, match="sender lost"):
        engine.update_weights(broken())
    assert engine.generate(PROMPTS, SEEDS) == sampler(tiny_model).generate(PROMPTS, SEEDS)
