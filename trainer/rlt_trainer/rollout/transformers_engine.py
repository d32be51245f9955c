"""A sampler on transformers with a KV cache, for small models and as a reference for vLLM."""

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
from rlt_trainer.rollout.weight_sums import Sums, sum_weights


class TransformersEngine:
    """Generates all prompts in one batch, one token per step, with a full copy of the weights."""

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
        """As in RolloutEngine. Each response has its own random generator."""
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
        sampled: list[Tensor] = []  # [B] per token; finished rows continue, and are cut to their lengths below
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
            distribution = compute_log_distribution(logits, sampling)
            token = sample(distribution, generators) if sampling.temperature > 0 else distribution.argmax(-1)
            sampled.append(token)
            log_probs.append(distribution.gather(-1, token[:, None]).squeeze(-1))
            lengths += running
            stopped |= running & torch.isin(token, stops)
            running &= ~stopped & (lengths < limits)
            tokens = token[:, None]
            mask = torch.cat([mask, torch.ones_like(tokens, dtype=torch.bool)], dim=-1)
            positions = positions[:, -1:] + 1
        ids = torch.stack(sampled, -1).tolist() if sampled else [[]] * len(prompts)
        values = torch.stack(log_probs, -1).tolist() if sampled else [[]] * len(prompts)
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
        """As in RolloutEngine. Each call of generate has its own KV cache, so none is dropped here."""
        for name, tensor in weights:
            self._weights[name].copy_(tensor)

    def sum_weights(self) -> Sums:
        """As in RolloutEngine."""
        return sum_weights(self._weights.items())

    def sleep(self) -> None:
        """As in RolloutEngine. No effect: there is no KV cache between calls, and the weights stay in memory."""

    def close(self) -> None:
        """As in RolloutEngine."""


def compute_log_distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return log-probabilities [B, V] in float32 after temperature, top_k and top_p, in vLLM's order.

    Greedy sampling does not scale the logits (temperature 1).
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
    """Set `logits` [B, V] below the `top_k`-th largest of each row to minus infinity. Ties with it are kept."""
    threshold = logits.topk(top_k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < threshold, -torch.inf)


def keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Set `logits` [B, V] outside the smallest set of tokens with probability `top_p` to minus infinity."""
    ordered, order = logits.sort(dim=-1, descending=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(-1) - probabilities
    return logits.scatter(-1, order, ordered.masked_fill(before >= top_p, -torch.inf))


def sample(log_probs: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """Sample a token [B] from each distribution [B, V] with the generator of its row: argmax p / q with q ~ Exp(1)."""
    noise = torch.empty_like(log_probs)
    for row, generator in zip(noise, generators, strict=True):
        row.exponential_(generator=generator)
    return (log_probs - noise.log()).argmax(-1)
