"""Encoding of examples: chat template, tokenization, and maximum length."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.data.image_prompts import expand_images, place_images
from rlt_trainer.data.prompt import Example, Messages, Prompt

_MARK = "rlt-tool-response"
"""A text that no chat template contains."""

_log = logging.getLogger(__name__)


def tokenize(
    examples: list[Example],
    tokenizer: PreTrainedTokenizerBase,
    *,
    chat_template: str | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    processor: ImageProcessor | None = None,
) -> list[Prompt]:
    """Tokenize examples: conversations with the chat template and its generation prompt, plain text unchanged.

    The chat template describes `tools`, in OpenAI's schema, in each conversation. Plain text is a user message then.
    A prompt with images is a conversation, too, and each image takes the place of a mark `<image>` in it.
    Raises ValueError if a conversation has no chat template, if the template rejects it or does not describe the tools,
    if the numbers of marks and images differ, or if a prompt has no tokens.
    """
    if tools:
        examples = [replace(each, prompt=as_messages(each.prompt)) for each in examples]
        validate_tool_template(tokenizer, chat_template, tools)
    if processor is not None:
        examples = [replace(each, prompt=as_messages(each.prompt)) for each in examples]
    texts = [
        example.prompt
        if isinstance(example.prompt, str)
        else chat_text(
            example.prompt if processor is None else place_images(example.prompt, len(example.images), row=row),
            tokenizer,
            chat_template,
            tools=tools,
        )
        for row, example in enumerate(examples, start=1)
    ]
    # The chat template writes the special tokens, such as bos, that the tokenizer adds to plain text.
    plain = all(isinstance(example.prompt, str) for example in examples)
    encoded = tokenizer(texts, add_special_tokens=plain, return_attention_mask=False)["input_ids"]
    if [] in encoded:
        raise ValueError(
            f"Prompt {encoded.index([]) + 1} of {len(texts)} is empty. Remove it or exclude it with data.filters."
        )
    if processor is not None:
        encoded = [
            expand_images(token_ids, example.images, processor)
            for token_ids, example in zip(encoded, examples, strict=True)
        ]
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
            images=example.images,
            image_names=example.image_names,
            difficulty=example.difficulty,
        )
        for index, (example, text, token_ids) in enumerate(zip(examples, texts, encoded, strict=True))
    ]


def chat_text(
    messages: Messages | list[dict[str, Any]],
    tokenizer: PreTrainedTokenizerBase,
    chat_template: str | None = None,
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Render a conversation with the chat template. Raises ValueError if there is none or if it rejects the
    conversation."""
    if tokenizer.chat_template is None and chat_template is None:
        raise ValueError(
            f"The tokenizer of {tokenizer.name_or_path or 'the model'} has no chat template, which conversations need. "
            "Use an instruct model, add chat_template.jinja to the model's folder, or set data.chatTemplate."
        )
    try:
        text = tokenizer.apply_chat_template(
            messages,
            tools=[dict(tool) for tool in tools] or None,
            chat_template=chat_template,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
        )
    except TemplateError as error:
        raise ValueError(f"The chat template rejects a conversation: {error}. Set data.chatTemplate.") from error
    assert isinstance(text, str)
    return text


def as_messages(prompt: str | Messages) -> Messages:
    """Return a prompt as a conversation: plain text is a user message."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def validate_tool_template(
    tokenizer: PreTrainedTokenizerBase, chat_template: str | None, tools: Sequence[Mapping[str, Any]]
) -> None:
    """Raises ValueError if the chat template does not describe tools, or does not render the response of a tool."""
    question = {"role": "user", "content": "q"}
    response = {"role": "tool", "name": "t", "tool_call_id": "call00000", "content": _MARK}
    described = chat_text([question], tokenizer, chat_template, tools=tools)
    answered = chat_text([question, {"role": "assistant", "content": "a"}, response], tokenizer, chat_template)
    for missing, problem in (
        (str(tools[0]["function"]["name"]) not in described, "does not describe tools (the variable `tools`)"),
        (_MARK not in answered, "does not render messages with the role tool"),
    ):
        if missing:
            raise ValueError(
                f"rollout.multiTurn.tools: the chat template {problem}. Use a model that is trained to call tools, or "
                "set data.chatTemplate."
            )


def limit_prompt_length(
    prompts: list[Prompt], data: Data, tokenizer: PreTrainedTokenizerBase, *, name: str
) -> tuple[list[Prompt], int]:
    """Filter, truncate or reject prompts over data.maxPromptLength tokens. Return the prompts and the number of
    overlong ones.

    Truncation is verl's: `left` removes the beginning, `right` the end, `middle` the middle. Messages call the prompts
    the `name` prompts. Raises ValueError if data.overlongPrompts is error or if every prompt is too long.
    """
    limit = data.max_prompt_length
    overlong = [prompt for prompt in prompts if len(prompt.token_ids) > limit]
    if not overlong:
        return prompts, 0
    problem = f"{len(overlong)} of {len(prompts)} {name} prompts are longer than data.maxPromptLength {limit}"
    if data.overlong_prompts == "error":
        longest = max(overlong, key=lambda prompt: len(prompt.token_ids))
        raise ValueError(
            f"{problem}: the longest has {len(longest.token_ids)} tokens{_describe_images(longest)}. Raise it, or set "
            "data.overlongPrompts: filter."
        )
    if data.overlong_prompts == "filter":
        kept = [prompt for prompt in prompts if len(prompt.token_ids) <= limit]
        if not kept:
            shortest = min(len(prompt.token_ids) for prompt in prompts)
            raise ValueError(
                f"data.maxPromptLength {limit} is shorter than each of the {len(prompts)} {name} prompts: the "
                f"shortest has {shortest} tokens. Raise it."
            )
        _log.warning("%s and are left out", problem)
        return kept, len(overlong)
    _log.warning("%s and are truncated (%s)", problem, data.overlong_prompts)
    return [_truncate(prompt, limit, data.overlong_prompts, tokenizer) for prompt in prompts], len(overlong)


def _describe_images(prompt: Prompt) -> str:
    if not prompt.images:
        return ""
    return f", {len(prompt.images)} images among them, whose size max_pixels in preprocessor_config.json limits"


def _truncate(prompt: Prompt, limit: int, side: str, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    ids = prompt.token_ids
    if len(ids) <= limit:
        return prompt
    begin = {"left": 0, "right": limit, "middle": limit // 2}[side]
    kept = ids[:begin] + ids[len(ids) - (limit - begin) :]
    return replace(prompt, token_ids=kept, text=str(tokenizer.decode(list(kept))))
