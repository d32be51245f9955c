"""A plain sampler on transformers with a KV cache: for small models, and to compare vLLM with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Event

import torch
from torch import Tensor
from transformers import DynamicCache

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.model import load_model
from rlt_trainer.policy.model_inputs import build_position_ids
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.weight_sums import Sums, weight_sums


class TransformersEngine:
    """All prompts in one batch, a token a step. It has a whole copy of the weights."""

    def __init__(
        self,
        files: str,
        *,
        dtype: torch.dtype,
        device: torch.device,
        sampling: Sampling,
        trust_remote_code: bool = False,
    ) -> None:
        model = load_model(files, dtype, trust_remote_code=trust_remote_code)
        self._model = model.to(device).requires_grad_(False)  # type: ignore[arg-type]
        self._weights = dict(self._model.named_parameters())
        self._device = device
        self._sampling = sampling

    @torch.no_grad()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        max_tokens: Sequence[int] | None = None,
        interrupt: Event | None = None,
    ) -> list[Response]:
        """As in RolloutEngine: every response has a random generator of its own."""
        if not prompts:
            return []
        sampling = sampling or self._sampling
        padded = Sequences.pad(prompts, [[0]] * len(prompts), pad_token_id=0).to(self._device)
        generators = [torch.Generator(self._device).manual_seed(seed) for seed in seeds]
        stops = torch.tensor(sampling.stop_token_ids, dtype=torch.long, device=self._device)
        limits = torch.tensor(max_tokens or [sampling.max_tokens] * len(prompts), device=self._device)
        cache = DynamicCache()
        tokens, mask = padded.prompts, padded.prompt_mask
        positions = build_position_ids(mask)
        running = torch.ones(len(prompts), dtype=torch.bool, device=self._device)
        stopped = ~running  # by a stop token
        lengths = torch.zeros(len(prompts), dtype=torch.long, device=self._device)
        drawn: list[Tensor] = []  # [B] a token; rows that have ended draw on, and are cut to their lengths below
        log_probs: list[Tensor] = []
        while running.any() and not (interrupt and interrupt.is_set()):
            logits = self._model(
                input_ids=tokens,
                attention_mask=mask.long(),
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            distribution = log_distribution(logits, sampling)
            token = draw(distribution, generators) if sampling.temperature > 0 else distribution.argmax(-1)
            drawn.append(token)
            log_probs.append(distribution.gather(-1, token[:, None]).squeeze(-1))
            lengths += running
            stopped |= running & torch.isin(token, stops)
            running &= ~stopped & (lengths < limits)
            tokens = token[:, None]
            mask = torch.cat([mask, torch.ones_like(tokens, dtype=torch.bool)], dim=-1)
            positions = positions[:, -1:] + 1
        ids = torch.stack(drawn, -1).tolist() if drawn else [[]] * len(prompts)
        values = torch.stack(log_probs, -1).tolist() if drawn else [[]] * len(prompts)
        return [
            Response(
                tuple(ids[row][:length]),
                tuple(values[row][:length]),
                finish_reason="abort" if aborted else "stop" if stop else "length",
            )
            for row, (length, aborted, stop) in enumerate(
                zip(lengths.tolist(), running.tolist(), stopped.tolist(), strict=True)
            )
        ]

    @torch.no_grad()
    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine."""
        result = []
        for sequence in sequences:
            tokens = torch.tensor([sequence], device=self._device)
            distribution = torch.log_softmax(self._model(input_ids=tokens, use_cache=False).logits[0].float(), -1)
            result.append(distribution[:-1].gather(-1, tokens[0, 1:, None]).squeeze(-1).tolist())
        return result

    @torch.no_grad()
    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """As in RolloutEngine. The KV cache lives within one call of generate."""
        for name, tensor in weights:
            self._weights[name].copy_(tensor)

    def weight_sums(self) -> Sums:
        """As in RolloutEngine."""
        return weight_sums(self._weights.items())

    def sleep(self) -> None:
        """As in RolloutEngine. Its KV cache is free between calls anyway, and its weights stay."""

    def close(self) -> None:
        """As in RolloutEngine."""


def log_distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """[B, V] log-probabilities in float32 after temperature, top_k and top_p, in vLLM's order.

    Greedy sampling leaves them as at temperature 1.
    """
    logits = logits.float()
    if sampling.temperature > 0:
        logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    return torch.log_softmax(logits, dim=-1)


def keep_top_k(logits: Tensor, top_k: int) -> Tensor:
    """`logits` [B, V] with minus infinity below the `top_k`-th greatest of each row; what equals it stays."""
    least = logits.topk(top_k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < least, -torch.inf)


def keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """`logits` [B, V] with minus infinity outside the smallest set of tokens whose probability reaches `top_p`."""
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(-1) - probabilities
    return logits.scatter(-1, order, ordered.masked_fill(before >= top_p, -torch.inf))


def draw(log_probs: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """A token [B] from each distribution [B, V], by its row's generator: argmax p / q with q ~ Exp(1)."""
    noise = torch.empty_like(log_probs)
    for row, generator in zip(noise, generators, strict=True):
        row.exponential_(generator=generator)
    return (log_probs - noise.log()).argmax(-1)
