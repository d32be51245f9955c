"""A sampler on transformers with a KV cache, for small models and as a reference for vLLM."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from prometheus_client.core import Metric
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from rlt_trainer.batches.response import FinishReason, Response
from rlt_trainer.batches.routes import Routes
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.policy.forward import find_decoder
from rlt_trainer.policy.model import cast_output_layer, iterate_buffers, load_model
from rlt_trainer.policy.model_inputs import build_position_ids
from rlt_trainer.policy.router_replay import RouterReplay
from rlt_trainer.policy.vision import embed_images, find_text_decoder
from rlt_trainer.rollout.engine import Done, EngineError, Part, Request, Sampling
from rlt_trainer.rollout.open_receiver import open_receiver
from rlt_trainer.rollout.stop_strings import ends_with_stop_string
from rlt_trainer.rollout.weight_channel import ChannelAddress, Received, receive_weights
from rlt_trainer.rollout.weight_sums import Sums, sum_weights

MAX_REQUESTS = 1024
"""Number of requests in a batch."""


@dataclass(eq=False)
class _Row:
    """A request in progress. Its random generator continues where it is when the batch changes."""

    request: Request
    done: Done
    generator: torch.Generator
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    routes: list[Routes] = field(default_factory=list)
    """Of the first `routed` tokens, in pieces."""
    routed: int = 0

    def add_routes(self, routes: Routes) -> None:
        """Add the routes of a pass over the last tokens [N, L, k], without tokens that an earlier batch computed."""
        tokens = len(self.request.prompt) + len(self.token_ids)
        self.routes.append(routes[len(routes) - (tokens - self.routed) :])
        self.routed = tokens

    def end(self, reason: FinishReason) -> None:
        routes = np.concatenate(self.routes) if self.routes else None
        response = Response(self.token_ids, self.log_probs, finish_reason=reason, routes=routes)
        self.done(self.request.number, response)


class TransformersEngine:
    """A RolloutEngine that generates all requests in one batch, one token per step, with a full copy of the weights.

    When a request arrives or the weights change, all requests start a new batch from their tokens.
    """

    def __init__(
        self,
        files: str,
        *,
        dtype: torch.dtype,
        device: torch.device,
        float32_head: bool = False,
        trust_remote_code: bool = False,
        processor: ImageProcessor | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        reports_routes: bool = False,
    ) -> None:
        """float32_head: model.castLmHeadToFp32. processor: for prompts with images (data.imageKey). tokenizer: for
        requests with stop strings (rollout.stop, and stop of an agent). reports_routes: algorithm.routerReplay R3.
        """
        model = load_model(files, dtype, trust_remote_code=trust_remote_code)
        if float32_head:
            cast_output_layer(model)
        self._model = model.to(device).requires_grad_(False)  # type: ignore[arg-type]
        self._weights = dict(iterate_weights(self._model))
        self._routers = RouterReplay(self._model) if reports_routes else None
        self._device = device
        self._processor = processor
        self._tokenizer = tokenizer
        self._rows: list[_Row] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._interrupt = threading.Event()
        self._batch: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._is_paused = False

    async def start(self) -> int:
        """As in RolloutEngine."""
        return MAX_REQUESTS

    async def submit(self, requests: Sequence[Request], done: Done) -> None:
        """As in RolloutEngine."""
        async with self._between_batches():
            for request in requests:
                generator = torch.Generator(self._device).manual_seed(request.seed)
                self._rows.append(_Row(request, done, generator))

    async def abort(self, numbers: Sequence[int]) -> None:
        """As in RolloutEngine."""
        async with self._between_batches():
            for row in [row for row in self._rows if row.request.number in numbers]:
                self._end(row, "abort")

    async def pause(self) -> None:
        """As in RolloutEngine."""
        async with self._between_batches():
            self._is_paused = True

    async def resume(self) -> None:
        """As in RolloutEngine."""
        async with self._between_batches():
            self._is_paused = False

    async def sleep(self) -> None:
        """As in RolloutEngine. No effect: a paused engine has no KV cache, and the weights stay in memory."""

    async def wake(self, part: Part) -> None:
        """As in RolloutEngine. No effect."""

    async def open_channel(self, addresses: Sequence[ChannelAddress]) -> None:
        """As in RolloutEngine."""
        self._channel = await asyncio.to_thread(open_receiver, addresses[0], self._device)

    async def receive_weights(self) -> Received:
        """As in RolloutEngine. Each batch has its own KV cache, so none is dropped here."""
        await asyncio.to_thread(self._load_weights)
        return self._channel.received

    async def sum_weights(self) -> Sums:
        """As in RolloutEngine."""
        return await asyncio.to_thread(sum_weights, iterate_weights(self._model))

    async def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine."""
        return await asyncio.to_thread(self._compute_log_probs, sequences)

    def read_metrics(self) -> list[Metric]:
        """As in RolloutEngine. transformers has none."""
        return []

    def close(self) -> None:
        """As in RolloutEngine."""
        self._interrupt.set()
        self._thread.shutdown()

    @asynccontextmanager
    async def _between_batches(self) -> AsyncIterator[None]:
        """End the batch after its current token, and start the next one after the block."""
        async with self._lock:
            self._interrupt.set()
            if self._batch is not None:
                await self._batch
            yield
            self._batch = None
            if self._rows and not self._is_paused:
                self._interrupt.clear()
                self._batch = asyncio.create_task(self._run_batch())

    async def _run_batch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._generate, list(self._rows), loop)
        except Exception as error:
            failure = EngineError(f"transformers failed during generation: {error}")
            for row in self._rows:
                row.done(row.request.number, failure)
            self._rows.clear()

    def _end(self, row: _Row, reason: FinishReason) -> None:
        self._rows.remove(row)
        row.end(reason)

    @torch.no_grad()
    def _generate(self, rows: Sequence[_Row], loop: asyncio.AbstractEventLoop) -> None:
        """Generate until all rows have ended, or until the interrupt."""
        contexts = [[*row.request.prompt, *row.token_ids] for row in rows]
        padded = Sequences.pad(contexts, [[0]] * len(rows), pad_token_id=0).to(self._device)
        generators = [row.generator for row in rows]
        running = dict(enumerate(rows))
        cache = DynamicCache(config=self._model.config)  # a family may have states besides keys and values
        tokens = padded.prompts.long()
        mask = padded.prompt_mask
        inputs, positions = self._embed(rows, tokens, mask)
        while running and not self._interrupt.is_set():
            pass_inputs = {"attention_mask": mask.long(), "position_ids": positions, "past_key_values": cache}
            logits = self._compute_logits(running, **inputs, **pass_inputs, use_cache=True)
            token, log_prob = sample_rows(logits, [row.request.sampling for row in rows], generators)
            for number, (token_id, value) in enumerate(zip(token.tolist(), log_prob.tolist(), strict=True)):
                row = running.get(number)  # ended rows stay in the batch
                if row is None:
                    continue
                row.token_ids.append(token_id)
                row.log_probs.append(value)
                stopped = self._is_complete(row)
                if stopped or len(row.token_ids) == row.request.max_tokens:
                    del running[number]
                    loop.call_soon_threadsafe(self._end, row, "stop" if stopped else "length")
            inputs = {"input_ids": token[:, None]}
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=-1)
            positions = positions[..., -1:] + 1

    def _is_complete(self, row: _Row) -> bool:
        """Return whether the row's last token is a stop token or completes a stop string."""
        sampling = row.request.sampling
        if row.token_ids[-1] in sampling.stop_token_ids:
            return True
        if not sampling.stop:
            return False
        assert self._tokenizer is not None
        return ends_with_stop_string(row.token_ids, sampling.stop, self._tokenizer)

    def _compute_logits(self, running: Mapping[int, _Row], **inputs: Any) -> Tensor:
        """Return the logits [B, V] after the last token. Add the routes of this pass to the `running` rows."""
        logits: Tensor
        if self._routers is not None:
            logits, routes = self._routers.record(lambda: self._model(**inputs, logits_to_keep=1).logits[:, -1])
            by_row = routes.view(len(logits), -1, *routes.shape[1:]).cpu().numpy()
            for number, row in running.items():
                row.add_routes(by_row[number])
            return logits
        if self._processor is None:
            logits = self._model(**inputs, logits_to_keep=1).logits[:, -1]
            return logits
        hidden = find_text_decoder(find_decoder(self._model))(**inputs).last_hidden_state[:, -1]
        return self._model.get_output_embeddings()(hidden)  # type: ignore[no-any-return]

    def _embed(self, rows: Sequence[_Row], tokens: Tensor, mask: Tensor) -> tuple[dict[str, Any], Tensor]:
        """Return the model's input for `tokens` [B, L], and the positions [B, L]; with images [3, B, L]."""
        if self._processor is None:
            return {"input_ids": tokens}, build_position_ids(mask)
        images = self._processor.process([image for row in rows for image in row.request.images])
        # Tokens that were generated are on the right, and stand for no image.
        generated = torch.tensor([len(row.token_ids) for row in rows], device=self._device)
        is_prompt = torch.arange(tokens.shape[1], device=self._device) < tokens.shape[1] - generated[:, None]
        is_image = (tokens == self._processor.token) & mask & is_prompt
        return embed_images(find_decoder(self._model), tokens, mask, is_image, images.to(self._device))

    @torch.no_grad()
    def _load_weights(self) -> None:
        for name, tensor in receive_weights(self._channel):
            self._weights[name].copy_(tensor)

    @torch.no_grad()
    def _compute_log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        result = []
        for sequence in sequences:
            tokens = torch.tensor([sequence], device=self._device)
            distribution = torch.log_softmax(self._model(input_ids=tokens, use_cache=False).logits[0].float(), -1)
            result.append(distribution[:-1].gather(-1, tokens[0, 1:, None]).squeeze(-1).tolist())
        return result


def iterate_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield what a weight sync sends: parameters, tied ones once, and persistent buffers."""
    return chain(model.named_parameters(), iterate_buffers(model))


def sample_rows(
    logits: Tensor, samplings: Sequence[Sampling], generators: Sequence[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """Sample a token [B] from the logits [B, V] of each row, and return it with its log-probability [B]."""
    tokens = torch.empty(len(samplings), dtype=torch.long, device=logits.device)
    log_probs = torch.empty(len(samplings), device=logits.device)
    for sampling in dict.fromkeys(samplings):
        rows = [row for row, each in enumerate(samplings) if each == sampling]
        distribution = compute_log_distribution(logits[rows], sampling)
        drawn = (
            sample(distribution, [generators[row] for row in rows])
            if sampling.temperature > 0
            else distribution.argmax(-1)
        )
        tokens[rows] = drawn
        log_probs[rows] = distribution.gather(-1, drawn[:, None]).squeeze(-1)
    return tokens, log_probs


def compute_log_distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return log-probabilities [B, V] in float32 after temperature, min_p, top_k and top_p, in vLLM's order.

    Greedy sampling does not scale the logits (temperature 1).
    """
    logits = logits.float()
    if sampling.temperature > 0:
        logits = logits / sampling.temperature
    if sampling.min_p > 0:
        logits = keep_min_p(logits, sampling.min_p)
    if 0 < sampling.top_k < logits.shape[-1]:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    return torch.log_softmax(logits, dim=-1)


def keep_min_p(logits: Tensor, min_p: float) -> Tensor:
    """Set `logits` [B, V] of tokens with less than `min_p` times the highest probability to minus infinity."""
    threshold = logits.amax(dim=-1, keepdim=True) + math.log(min_p)
    return logits.masked_fill(logits < threshold, -torch.inf)


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
