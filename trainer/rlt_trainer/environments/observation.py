"""What an environment says, in tokens that go behind those of a turn. Earlier tokens are never made anew."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from rlt_trainer.data.encoding import chat_text

_MARK = "rlt-end-of-turn"
"""An assistant's words, by which the place behind them is found in what a template has written."""


def observation_tokens(
    text: str,
    said: Sequence[int],
    tokenizer: PreTrainedTokenizerBase,
    *,
    is_chat: bool,
    chat_template: str | None = None,
) -> list[int]:
    """The tokens of an observation behind the tokens `said` of the policy's turn (none before its first one).

    In a chat it is a user's message, with all that the template writes between the end of the assistant's words and
    the next ones; of that, the mark that ends a turn is left out where the turn has brought it. Elsewhere it is the
    text alone.
    """
    if is_chat:
        messages = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": _MARK},
            {"role": "user", "content": text},
        ]
        text = chat_text(messages, tokenizer, chat_template).partition(_MARK)[2]
        if said:
            text = text.removeprefix(str(tokenizer.decode([said[-1]])))
    token_ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return token_ids
