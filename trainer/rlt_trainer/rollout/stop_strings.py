"""Stop strings in the tokens of a response, as vLLM finds them."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.rollout import Rollout

CONTEXT = 4
"""Tokens before those that can contain a stop string: a character has at most four bytes, and some decoders drop a
space at the start of a text."""


def may_have_stop_strings(rollout: Rollout) -> bool:
    """Return whether requests can have stop strings, which the engine needs a tokenizer for."""
    has_agent = rollout.multi_turn is not None and rollout.multi_turn.agent is not None
    return bool(rollout.stop) or has_agent  # each request of an agent can have its own


def ends_with_stop_string(token_ids: Sequence[int], stop: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the text of `token_ids` contains one of the strings, special tokens included.

    It is called after each token, so that only the end of the text is decoded. A token has at least one byte.
    """
    longest = max(len(text.encode()) for text in stop)
    end = list(token_ids[-(longest + CONTEXT) :])
    decoded = str(tokenizer.decode(end, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    return any(text in decoded for text in stop)
