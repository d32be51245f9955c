"""A plain sampler on transformers with a KV cache: for small models, and to compare vLLM with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from rlt_trainer.policy.log_probs import position_ids
from rlt_trainer.policy.model import load_model
from rlt_trainer.rollout.engine import Response, Sampling
from rlt_trainer.sequences import Sequences


class TransformersSampler:
    """All prompts in one batch, a token a step. It has a whole copy of the weights."""

    def __init__(self, files: str, *, dtype: torch.dtype, device: torch.device, sampling: Sampling) -> None:
        self._model = load_model(files, dtype).to(device).requires_grad_(False)  # type: ignore[arg-type]
        self._weights = dict(self._model.named_parameters())
        self._device = device
        self._sampling = sampling

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """As in RolloutEngine: every response has a random generator of its own."""
        padded = Sequences.pad(prompts, [[0]] * len(prompts), pad_token_id=0).to(self._device)
        generators = [torch.Generator(self._device).manual_seed(seed) for seed in seeds]
        stops = torch.tensor(self._sampling.stop_token_ids, device=self._device)
        cache = DynamicCache()
        tokens, mask = padded.prompts, padded.prompt_mask
        positions = position_ids(mask)
        running = torch.ones(len(prompts), dtype=torch.bool, device=self._device)
        drawn: list[Tensor] = []
        log_probs: list[Tensor] = []
        lengths = torch.zeros(len(prompts), dtype=torch.long, device=self._device)
        for _ in range(self._sampling.max_tokens):
            logits = self._model(
                input_ids=tokens,
                attention_mask=mask.long(),
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            distribution = self._distribution(logits)
            token = draw(distribution, generators)
            drawn.append(token)
            log_probs.append(distribution.gather(-1, token[:, None]).squeeze(-1))
            lengths += running
            running &= ~torch.isin(token, stops)
            if not running.any():
                break
            tokens = token[:, None]
            mask = torch.cat([mask, torch.ones_like(tokens, dtype=torch.bool)], dim=-1)
            positions = positions[:, -1:] + 1
        rows = zip(torch.stack(drawn, -1).tolist(), torch.stack(log_probs, -1).tolist(), lengths.tolist(), strict=True)
        return [Response(tuple(ids[:length]), tuple(values[:length])) for ids, values, length in rows]

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

    def close(self) -> None:
        """As in RolloutEngine."""

    def _distribution(self, logits: Tensor) -> Tensor:
        """[B, V] log-probabilities in float32 after temperature and top_p."""
        logits = logits.float() / self._sampling.temperature
        if self._sampling.top_p < 1:
            logits = keep_top_p(logits, self._sampling.top_p)
        return torch.log_softmax(logits, dim=-1)


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
