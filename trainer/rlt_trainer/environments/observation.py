"""Tokenization of observations, which are appended to the tokens of a turn. Earlier tokens do not change."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from rlt_trainer.data.encoding import chat_text
from rlt_trainer.data.prompt import Messages

_MARK = "rlt-end-of-turn"
"""A placeholder for the content of an assistant message, used to find the end of that content in the rendered
template."""


def tokenize_observation(
    observation: Messages,
    turn: Sequence[int],
    tokenizer: PreTrainedTokenizerBase,
    *,
    is_chat: bool,
    chat_template: str | None = None,
) -> list[int]:
    """Tokenize an observation that follows the tokens `turn` of the policy (empty before its first turn).

    In a chat this includes all text that the template renders from the end of the assistant's content to the next
    generation prompt. The end-of-turn token is removed if the turn already ends with it. Otherwise it is the plain text
    of the messages.
    """
    text = "".join(message["content"] for message in observation)
    if is_chat:
        messages = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": _MARK},
            *observation,
        ]
        text = chat_text(messages, tokenizer, chat_template).partition(_MARK)[2]
        if turn:
            text = text.removeprefix(str(tokenizer.decode([turn[-1]])))
    token_ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return token_ids
