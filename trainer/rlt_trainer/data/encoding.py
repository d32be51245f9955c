"""Examples become tokens: through the chat template, and no longer than wanted."""

from __future__ import annotations

import logging
from dataclasses import replace

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_trainer.data.prompt import Example, Messages, Prompt

_log = logging.getLogger(__name__)


def tokenize(
    examples: list[Example], tokenizer: PreTrainedTokenizerBase, *, chat_template: str | None = None
) -> list[Prompt]:
    """Examples in tokens: conversations through the chat template with generation prompt, plain text as it is.

    Raises ValueError when there are conversations and the tokenizer has no chat template, when the template refuses
    one, and for a prompt without any token.
    """
    texts = [
        example.prompt if isinstance(example.prompt, str) else chat_text(example.prompt, tokenizer, chat_template)
        for example in examples
    ]
    # The template writes the marks that a plain text gets from the tokenizer, bos for instance.
    plain = all(isinstance(example.prompt, str) for example in examples)
    encoded = tokenizer(texts, add_special_tokens=plain, return_attention_mask=False)["input_ids"]
    if [] in encoded:
        raise ValueError(f"Prompt {encoded.index([]) + 1} of {len(texts)} is empty: leave it out (data.filters).")
    return [
        Prompt(
            index=index,
            token_ids=tuple(token_ids),
            text=text,
            ground_truth=example.ground_truth,
            solution=example.solution,
            data_source=example.data_source,
            messages=None if isinstance(example.prompt, str) else example.prompt,
            extra_info=example.extra_info,
        )
        for index, (example, text, token_ids) in enumerate(zip(examples, texts, encoded, strict=True))
    ]


def chat_text(
    messages: Messages,
    tokenizer: PreTrainedTokenizerBase,
    chat_template: str | None = None,
    *,
    add_generation_prompt: bool = True,
) -> str:
    """A conversation as the chat template writes it. Raises ValueError without a template, and when it refuses."""
    if tokenizer.chat_template is None and chat_template is None:
        raise ValueError(
            f"The tokenizer of {tokenizer.name_or_path or 'the model'} has no chat template, which conversations need: "
            "take an instruct model, add chat_template.jinja to the model's folder, or give data.chatTemplate."
        )
    try:
        text = tokenizer.apply_chat_template(
            messages, chat_template=chat_template, tokenize=False, add_generation_prompt=add_generation_prompt
        )
    except TemplateError as error:
        raise ValueError(f"The chat template refuses a conversation: {error}. Give data.chatTemplate.") from error
    assert isinstance(text, str)
    return text


def fitted(
    prompts: list[Prompt], data: Data, tokenizer: PreTrainedTokenizerBase, *, name: str
) -> tuple[list[Prompt], int]:
    """Prompts of at most data.maxPromptLength tokens, and how many were longer: left out, cut or refused. Messages call
    them the `name` prompts.

    Cutting is verl's truncation: `left` cuts the beginning away, `right` the end, `middle` keeps both halves.
    """
    most = data.max_prompt_length
    longer = [prompt for prompt in prompts if len(prompt.token_ids) > most]
    if not longer:
        return prompts, 0
    what = f"{len(longer)} of {len(prompts)} {name} prompts are longer than data.maxPromptLength {most}"
    longest = max(len(prompt.token_ids) for prompt in longer)
    if data.overlong_prompts == "error":
        raise ValueError(f"{what}: the longest has {longest} tokens. Raise it, or set data.overlongPrompts: filter.")
    if data.overlong_prompts == "filter":
        kept = [prompt for prompt in prompts if len(prompt.token_ids) <= most]
        if not kept:
            shortest = min(len(prompt.token_ids) for prompt in prompts)
            raise ValueError(
                f"data.maxPromptLength {most} is shorter than each of the {len(prompts)} {name} prompts: the "
                f"shortest has {shortest} tokens. Raise it."
            )
        _log.warning("%s and are left out", what)
        return kept, len(longer)
    _log.warning("%s and are cut (%s)", what, data.overlong_prompts)
    return [_cut(prompt, most, data.overlong_prompts, tokenizer) for prompt in prompts], len(longer)


def _cut(prompt: Prompt, most: int, part: str, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    ids = prompt.token_ids
    if len(ids) <= most:
        return prompt
    begin = {"left": 0, "right": most, "middle": most // 2}[part]
    kept = ids[:begin] + ids[len(ids) - (most - begin) :]
    return replace(prompt, token_ids=kept, text=str(tokenizer.decode(list(kept))))
