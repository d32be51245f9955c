"""The tokenized pairs of a run: a prompt, a chosen and a rejected response, in TRL's columns."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile
from typing import Any, Self

from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_trainer.data.encoding import chat_text
from rlt_trainer.data.epochs import Epochs
from rlt_trainer.data.prompt import Messages
from rlt_trainer.data.tables import SourceRow, is_conversation, read_rows, require_column

_log = logging.getLogger(__name__)

CHOSEN = "chosen"
REJECTED = "rejected"
"""The columns of the responses, as in a preference data set of TRL 1.16."""


@dataclass(frozen=True)
class Pair:
    """A tokenized pair."""

    prompt: tuple[int, ...]
    """With special tokens and generation prompt."""
    chosen: tuple[int, ...]
    """With the end-of-text token, or what the chat template writes after the last message."""
    rejected: tuple[int, ...]


@dataclass(frozen=True)
class PairSet:
    """The pairs of a data set, in its order."""

    pairs: Sequence[Pair]
    overlong: int = 0
    """Number of pairs that were left out because a part is longer than its maximum."""

    @classmethod
    def load(cls, data: Data, tokenizer: PreTrainedTokenizerBase) -> Self:
        """Read and tokenize the pairs of files or hub.

        Raises ValueError with the row, its problem and the fix, and if every pair is longer than data.maxPromptLength
        or data.maxResponseLength.
        """
        rows = read_rows(data)
        pairs = [_tokenize(row, data, tokenizer) for row in rows]
        prompt_limit = data.max_prompt_length
        limit = data.max_response_length
        fits = [
            len(pair.prompt) <= prompt_limit and max(len(pair.chosen), len(pair.rejected)) <= limit for pair in pairs
        ]
        overlong = fits.count(False)
        if not overlong:
            return cls(pairs)
        problem = (
            f"{overlong} of {len(pairs)} pairs are longer than data.maxPromptLength {prompt_limit} or "
            f"data.maxResponseLength {limit}"
        )
        if data.overlong_prompts == "error" or overlong == len(pairs):
            first = fits.index(False)
            parts = pairs[first].prompt, pairs[first].chosen, pairs[first].rejected
            lengths = ", ".join(str(len(part)) for part in parts)
            fix = "" if overlong == len(pairs) else ", or set data.overlongPrompts: filter"
            raise ValueError(
                f"{rows[first].location}: prompt, chosen and rejected have {lengths} tokens. {problem}: raise "
                f"them{fix}."
            )
        _log.warning("%s and are left out", problem)
        return cls([pair for pair, is_kept in zip(pairs, fits, strict=True) if is_kept], overlong)


class PairDataset(Epochs[Pair]):
    """An endless sequence of training pairs."""

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of the data and its order, which checkpoints store."""
        digest = sha256()
        for pair in self._rows:
            digest.update(f"{pair.prompt}\0{pair.chosen}\0{pair.rejected}\0".encode())
        return {"prompts": len(self), "order": self.order, "sha256": digest.hexdigest()}


def _tokenize(row: SourceRow, data: Data, tokenizer: PreTrainedTokenizerBase) -> Pair:
    prompt, chosen, rejected = _read_columns(row, data)
    if isinstance(prompt, str):
        encoded = tokenizer(prompt)["input_ids"]
        responses = [
            [*tokenizer(each, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            for each in (chosen, rejected)
        ]
    else:
        text = chat_text(prompt, tokenizer, data.chat_template)
        encoded = tokenizer(text, add_special_tokens=False)["input_ids"]
        responses = [
            tokenizer(_render_response(prompt, text, each, row, data, tokenizer), add_special_tokens=False)["input_ids"]
            for each in (chosen, rejected)
        ]
    if not encoded:
        raise ValueError(f"{row.location}: column {data.prompt_key} is empty. Add a prompt, or remove the row.")
    return Pair(tuple(encoded), *map(tuple, responses))


def _read_columns(row: SourceRow, data: Data) -> tuple[Any, Any, Any]:
    """Return prompt, chosen and rejected: all are text, or all are conversations.

    Without a prompt, it is the common beginning of the two conversations, as in TRL's extract_prompt.
    """
    chosen, rejected = (require_column(row, name, "algorithm.dpo") for name in (CHOSEN, REJECTED))
    if chosen == rejected:
        raise ValueError(
            f"{row.location}: {CHOSEN} and {REJECTED} are equal: {str(chosen)[:60]!r}. Correct or remove the row."
        )
    if data.prompt_key not in row.columns and is_conversation(chosen) and is_conversation(rejected):
        same = takewhile(lambda both: both[0] == both[1], zip(chosen, rejected, strict=False))
        prompt: Any = [message for message, _ in same]
        chosen = chosen[len(prompt) :]
        rejected = rejected[len(prompt) :]
    else:
        prompt = require_column(row, data.prompt_key, "data.promptKey")
    columns = {data.prompt_key: prompt, CHOSEN: chosen, REJECTED: rejected}
    if not any(all(map(is_form, columns.values())) for is_form in (_is_text, is_conversation)):
        found = ", ".join(f"{name} is {_describe(each)}" for name, each in columns.items())
        raise ValueError(
            f"{row.location}: {found}. All three must be text, or all three lists of messages with role and content: "
            "correct the data."
        )
    return prompt, chosen, rejected


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _describe(value: object) -> str:
    return "text" if isinstance(value, str) else "a conversation" if is_conversation(value) else repr(value)[:40]


def _render_response(
    prompt: Messages, text: str, response: Messages, row: SourceRow, data: Data, tokenizer: PreTrainedTokenizerBase
) -> str:
    whole = chat_text([*prompt, *response], tokenizer, data.chat_template, add_generation_prompt=False)
    if not whole.startswith(text):
        raise ValueError(
            f"{row.location}: the chat template renders the prompt otherwise with a response after it: "
            f"{whole[: len(text)][-60:]!r} instead of {text[-60:]!r}. Set data.chatTemplate."
        )
    return whole[len(text) :]
