"""Rollout batches of later steps as tensors in a checkpoint, so that a resumed run trains on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from rlt_trainer.batches.response import FinishReason, Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt

REASONS: tuple[FinishReason, ...] = get_args(FinishReason)
REWARD, FAILURE = "reward.", "failure."


def pack(queue: Mapping[int, RolloutBatch]) -> dict[str, Tensor]:
    """Return tensors under the names STEP/FIELD. Fields that can be derived from them, such as texts, are left out."""
    return {f"{step}/{name}": tensor for step, batch in queue.items() for name, tensor in _named_tensors(batch)}


def unpack(
    tensors: Mapping[str, Tensor],
    *,
    prompts: Callable[[Sequence[int]], list[Prompt]],
    decode: Callable[[list[list[int]]], list[str]],
) -> dict[int, RolloutBatch]:
    """Restore the batches of `pack`. `prompts` returns prompts by index, `decode` returns texts of tokens."""
    steps = sorted({int(name.partition("/")[0]) for name in tensors})
    parts = {step: {n.partition("/")[2]: t for n, t in tensors.items() if n.startswith(f"{step}/")} for step in steps}
    return {step: _rollout_batch(part, prompts, decode) for step, part in parts.items()}


def _named_tensors(batch: RolloutBatch) -> list[tuple[str, Tensor]]:
    responses = [sequence for response in batch.responses for sequence in response.sequences]
    prompts, scores = [response.prompt or () for response in responses], batch.scores
    named = [
        ("prompts", torch.tensor([prompt.index for prompt in batch.prompts])),
        ("sequences", torch.tensor([len(response.sequences) for response in batch.responses])),
        ("prompt_lengths", torch.tensor([len(prompt) for prompt in prompts])),
        ("prompt_tokens", torch.tensor([token for prompt in prompts for token in prompt], dtype=torch.int64)),
        ("lengths", torch.tensor([len(response.token_ids) for response in responses])),
        ("tokens", torch.tensor([token for response in responses for token in response.token_ids])),
        ("log_probs", torch.tensor([v for response in responses for v in response.log_probs], dtype=torch.float64)),
        ("chosen", torch.tensor([chosen for response in responses for chosen in response.chosen])),
        ("turns", torch.tensor([response.num_turns for response in responses])),
        ("finish", torch.tensor([REASONS.index(response.finish_reason) for response in responses])),
        ("total", scores.total),
        ("penalties", batch.penalties),
        ("counts", torch.tensor([batch.consumed, batch.num_gen_batches])),
        *((f"{REWARD}{name}", values) for name, values in scores.by_reward.items()),
        *((f"{FAILURE}{reason}", torch.tensor(count)) for reason, count in scores.reasons.items()),
    ]
    return named if batch.baselines is None else [*named, ("baselines", batch.baselines)]


def _rollout_batch(
    part: Mapping[str, Tensor],
    prompts: Callable[[Sequence[int]], list[Prompt]],
    decode: Callable[[list[list[int]]], list[str]],
) -> RolloutBatch:
    lengths = part["lengths"].tolist()
    token_ids, log_probs, chosen = (
        [piece.tolist() for piece in torch.split(part[name], lengths)] for name in ("tokens", "log_probs", "chosen")
    )
    contexts: list[tuple[int, ...] | None] = [None] * len(lengths)
    if "prompt_lengths" in part:  # checkpoints before agents have none
        pieces = torch.split(part["prompt_tokens"], part["prompt_lengths"].tolist())
        contexts = [tuple(piece.tolist()) or None for piece in pieces]
    rest = zip(part["turns"].tolist(), part["finish"].tolist(), contexts, strict=True)
    sequences = [
        Response(tuple(tokens), tuple(values), tuple(mask), turns, REASONS[finish], context)
        for tokens, values, mask, (turns, finish, context) in zip(token_ids, log_probs, chosen, rest, strict=True)
    ]
    each = iter(sequences)
    sizes = part["sequences"].tolist() if "sequences" in part else [1] * len(sequences)
    groups = [[next(each) for _ in range(size)] for size in sizes]
    responses = [replace(last, earlier=tuple(earlier)) for *earlier, last in groups]
    scores = Scores(
        part["total"],
        {name.removeprefix(REWARD): values for name, values in part.items() if name.startswith(REWARD)},
        part["total"].isnan(),
        {name.removeprefix(FAILURE): int(count) for name, count in part.items() if name.startswith(FAILURE)},
    )
    consumed, num_gen_batches = part["counts"].tolist()
    return RolloutBatch(
        prompts(part["prompts"].tolist()),
        responses,
        decode([list(response.token_ids) for response in responses]),
        scores,
        part["penalties"],
        part.get("baselines"),
        consumed,
        num_gen_batches,
    )
