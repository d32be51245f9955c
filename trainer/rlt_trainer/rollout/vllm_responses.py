"""Responses from vLLM's outputs (vllm/outputs.py, vLLM 0.32)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from rlt_trainer.batches.response import FinishReason, Response
from rlt_trainer.batches.routes import Routes, encode_routes

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput

FINISHED: dict[str | None, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}


def read_response(output: RequestOutput, *, experts: int | None) -> Response:
    """Return the response to a request. experts: their number in a layer, if vLLM reports the routes of tokens.

    Raises ValueError if the routes of a token are missing.
    """
    from vllm.logprobs import FlatLogprobs

    completion = output.outputs[0]
    tokens = completion.token_ids
    sampled = completion.logprobs
    assert isinstance(sampled, FlatLogprobs)
    assert len(sampled.logprobs) == len(tokens)
    routes = None if experts is None else _read_routes(output, experts)
    return Response(tokens, sampled.logprobs, finish_reason=FINISHED[completion.finish_reason], routes=routes)


def _read_routes(output: RequestOutput, experts: int) -> Routes | None:
    """Return the routes of all tokens but the last, or of the first ones if the request was aborted."""
    completion = output.outputs[0]
    chosen = completion.routed_experts
    is_aborted = completion.finish_reason == "abort"
    if chosen is None and is_aborted:
        return None
    found = 0 if chosen is None else len(chosen)
    expected = len(output.prompt_token_ids or ()) + len(completion.token_ids) - 1
    if chosen is None or (found != expected and not is_aborted):
        raise ValueError(f"it reported the experts of {found} of {expected} tokens (algorithm.routerReplay R3)")
    return encode_routes(torch.from_numpy(chosen[:expected].astype(np.int16)), experts).numpy()
