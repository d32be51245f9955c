"""Groups of later steps as tensors in a checkpoint, so that a resumed run trains on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from rlt_trainer.batches.ragged import join_rows, split_rows
from rlt_trainer.batches.response import FinishReason, Response
from rlt_trainer.batches.routes import Routes
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.rollouts import PendingGroup, Rollout
from rlt_trainer.driver.schedule import Group
from rlt_trainer.rewards.outcome import Failure, Outcome, Reason

FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)
REASONS: tuple[Reason, ...] = get_args(Reason)
SCORE = "score."
FAILURE = "failure."

NO_VERSION = -1
"""The code of a response without a version."""

MISSING = -1
SCORED = 0
SKIPPED = 100
"""Codes of an outcome: the response has none of this name, a score, and an offset of failures without a call. Other
codes are 1 + an index of REASONS."""


def pack(ready: Sequence[Group], others: Sequence[Group]) -> dict[str, Tensor]:
    """Return groups as tensors: those that can be in a batch, and others. No tensors for no groups.

    Of a group without results, the requests alone are saved. Texts are left out: they can be decoded from the tokens.
    """
    groups = [*ready, *others]
    if not groups:
        return {}
    results = [group.results() or [] for group in groups]
    rollouts = [rollout for each in results for rollout in each]
    of_rollouts = [(*rollout.response.side, *rollout.response.sequences) for rollout in rollouts]
    responses = [sequence for sequences in of_rollouts for sequence in sequences]
    prompts = [response.prompt or () for response in responses]
    tensors = {
        "number": _integers(group.number for group in groups),
        "started": _integers(group.started for group in groups),
        "seeds": torch.tensor([list(group.seeds) for group in groups]),
        "prompt": _integers(group.prompt.index for group in groups),
        "ready": torch.tensor(len(ready)),
        "responses": _integers(map(len, results)),
        "sequences": _integers(map(len, of_rollouts)),
        "side": _integers(len(rollout.response.side) for rollout in rollouts),
        "prompt_lengths": _integers(map(len, prompts)),
        "prompt_tokens": _integers(token for prompt in prompts for token in prompt),
        "lengths": _integers(len(response.token_ids) for response in responses),
        "tokens": join_rows([response.token_ids for response in responses], np.int32),
        "log_probs": join_rows([response.log_probs for response in responses], np.float32),
        "chosen": join_rows([response.chosen for response in responses], np.bool_),
        "turns": _integers(response.num_turns for response in responses),
        "finish": _integers(FINISH_REASONS.index(response.finish_reason) for response in responses),
        "version": _integers(NO_VERSION if response.version is None else response.version for response in responses),
    }
    if routes := [response.routes for response in responses if response.routes is not None]:
        tensors["routes"] = torch.from_numpy(np.concatenate(routes))
        tensors["route_lengths"] = _integers(0 if each.routes is None else len(each.routes) for each in responses)
    for name in dict.fromkeys(name for rollout in rollouts for name in rollout.outcomes):
        outcomes = [rollout.outcomes.get(name) for rollout in rollouts]
        scores = [outcome if isinstance(outcome, float) else torch.nan for outcome in outcomes]
        tensors[SCORE + name] = torch.tensor(scores, dtype=torch.float64)
        tensors[FAILURE + name] = _integers(_encode(outcome) for outcome in outcomes)
    return tensors


def unpack(
    tensors: Mapping[str, Tensor],
    *,
    prompts: Callable[[Sequence[int]], list[Prompt]],
    decode: Callable[[list[int]], str],
) -> tuple[list[Group], list[Group]]:
    """Restore the groups of `pack`. `prompts` returns prompts by index, `decode` returns the text of tokens."""
    if not tensors:
        return [], []
    groups = []
    rollouts = iter(_rollouts(tensors, prompts, decode))
    columns = [tensors[name].tolist() for name in ("number", "started", "seeds", "responses")]
    for prompt, number, started, seeds, responses in zip(prompts(tensors["prompt"].tolist()), *columns, strict=True):
        pending = PendingGroup()
        if responses > 0:
            pending.generated.set_result(None)
            pending.scored.set_result([next(rollouts) for _ in range(responses)])
        groups.append(Group(number, started, prompt, seeds, pending))
    ready = int(tensors["ready"])
    return groups[:ready], groups[ready:]


def _rollouts(
    tensors: Mapping[str, Tensor], prompts: Callable[[Sequence[int]], list[Prompt]], decode: Callable[[list[int]], str]
) -> list[Rollout]:
    of_prompt = prompts(tensors["prompt"].repeat_interleave(tensors["responses"]).tolist())
    by_name = {
        name: list(zip(tensors[FAILURE + name].tolist(), tensors[SCORE + name].tolist(), strict=True))
        for name in [each.removeprefix(SCORE) for each in tensors if each.startswith(SCORE)]
    }
    return [
        Rollout(
            prompt,
            response,
            decode(list(response.token_ids)),
            {name: _decode(*codes[row]) for name, codes in by_name.items() if codes[row][0] != MISSING},
        )
        for row, (prompt, response) in enumerate(zip(of_prompt, _responses(tensors), strict=True))
    ]


def _responses(tensors: Mapping[str, Tensor]) -> Iterator[Response]:
    def pieces(name: str, lengths: str) -> list[list[Any]]:
        return [piece.tolist() for piece in torch.split(tensors[name], tensors[lengths].tolist())]

    columns = zip(
        pieces("tokens", "lengths"),
        pieces("log_probs", "lengths"),
        pieces("chosen", "lengths"),
        tensors["turns"].tolist(),
        tensors["finish"].tolist(),
        tensors["version"].tolist(),
        pieces("prompt_tokens", "prompt_lengths"),
        _split_routes(tensors),
        strict=True,
    )
    sequences = (
        Response(
            tokens,
            values,
            chosen,
            turns,
            FINISH_REASONS[finish],
            tuple(of) or None,
            version=None if version == NO_VERSION else version,
            routes=routes,
        )
        for tokens, values, chosen, turns, finish, version, of, routes in columns
    )
    sizes = tensors["sequences"]
    for size, side in zip(sizes.tolist(), tensors.get("side", torch.zeros_like(sizes)).tolist(), strict=True):
        *others, last = islice(sequences, size)
        yield replace(last, earlier=tuple(others[side:]), side=tuple(others[:side]))


def _split_routes(tensors: Mapping[str, Tensor]) -> list[Routes | None]:
    """Return the routes of each response. None for a response without them."""
    if "routes" not in tensors:
        return [None] * len(tensors["lengths"])
    rows = split_rows(tensors["routes"].numpy(), tensors["route_lengths"].tolist())
    return [row if len(row) > 0 else None for row in rows]


def _encode(outcome: Outcome | None) -> int:
    if outcome is None:
        return MISSING
    if not isinstance(outcome, Failure):
        return SCORED
    return 1 + REASONS.index(outcome.reason) + (0 if outcome.was_called else SKIPPED)


def _decode(code: int, score: float) -> Outcome:
    if code == SCORED:
        return score
    was_called = code < SKIPPED
    return Failure(REASONS[code - 1 - (0 if was_called else SKIPPED)], "before the run was resumed", was_called)


def _integers(values: Iterable[int]) -> Tensor:
    return torch.tensor([int(value) for value in values], dtype=torch.int64)
