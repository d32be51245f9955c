"""The prompts of a run in tokens, and which of them each step takes."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_trainer.data.arithmetic import arithmetic_examples
from rlt_trainer.data.gsm8k import gsm8k_examples, prepare_gsm8k
from rlt_trainer.data.prompt import Example, Prompt
from rlt_trainer.data.tables import file_examples, inline_examples

__all__ = ["Prompt", "PromptDataset"]

_log = logging.getLogger(__name__)


class PromptDataset:
    """The training prompts, in an order that depends on the seed and the step alone: resuming needs no saved state."""

    def __init__(self, prompts: list[Prompt], *, seed: int, shuffle: bool) -> None:
        assert prompts, "an empty data set is refused where it is read"
        self._prompts = prompts
        self._seed = seed
        self._shuffle = shuffle

    @classmethod
    def load(cls, data: Data, tokenizer: PreTrainedTokenizerBase, *, seed: int, run_directory: Path) -> Self:
        """Read or make the data, tokenize it and deal with prompts over data.maxPromptLength tokens.

        gsm8k is prepared to parquet in run_directory/data first. Raises ValueError, naming what is wrong and what to
        do, when the data is missing or malformed, when nothing is short enough, or without a needed chat template.
        """
        examples = read_examples(data, seed=seed, run_directory=run_directory)
        prompts = tokenize(examples, tokenizer, chat_template=data.chat_template)
        kept = fitted(prompts, data, tokenizer)
        return cls(kept, seed=seed, shuffle=data.shuffle)

    def __len__(self) -> int:
        return len(self._prompts)

    def batch(self, step: int, size: int) -> list[Prompt]:
        """The `size` prompts of a step, counted from 0; a batch goes on into the next epoch where one ends."""
        batch: list[Prompt] = []
        while len(batch) < size:
            epoch, place = divmod(step * size + len(batch), len(self))
            batch += [self._prompts[i] for i in self._order(epoch)[place : place + size - len(batch)]]
        return batch

    def _order(self, epoch: int) -> list[int]:
        if not self._shuffle:
            return list(range(len(self)))
        return [int(i) for i in np.random.default_rng([self._seed, epoch]).permutation(len(self))]


def read_examples(data: Data, *, seed: int, run_directory: Path) -> list[Example]:
    """The examples of the preset, the files or the job itself. Raises ValueError naming what is wrong."""
    if data.files is not None:
        return file_examples(data)
    if data.inline is not None:
        return inline_examples(data)
    if data.preset == "gsm8k":
        if data.path is None:
            raise ValueError("data.path is needed for preset gsm8k: the folder of train.jsonl and test.jsonl.")
        prepare_gsm8k(Path(data.path), run_directory / "data")
        return gsm8k_examples(run_directory / "data" / "train.parquet")
    if data.path is not None:
        _log.warning("data.path %s is not read: preset arithmetic makes its own prompts", data.path)
    return arithmetic_examples(seed)


def fitted(prompts: list[Prompt], data: Data, tokenizer: PreTrainedTokenizerBase) -> list[Prompt]:
    """Prompts of at most data.maxPromptLength tokens: longer ones are left out, cut or refused (data.overlongPrompts).

    Cutting is verl's truncation: `left` cuts the beginning away, `right` the end, `middle` keeps both halves.
    """
    most = data.max_prompt_length
    longer = [prompt for prompt in prompts if len(prompt.token_ids) > most]
    if not longer:
        return prompts
    what = f"{len(longer)} of {len(prompts)} prompts are longer than data.maxPromptLength {most}"
    longest = max(len(prompt.token_ids) for prompt in longer)
    if data.overlong_prompts == "error":
        raise ValueError(f"{what}: the longest has {longest} tokens. Raise it, or set data.overlongPrompts: filter.")
    if data.overlong_prompts == "filter":
        kept = [prompt for prompt in prompts if len(prompt.token_ids) <= most]
        if not kept:
            shortest = min(len(prompt.token_ids) for prompt in prompts)
            raise ValueError(
                f"data.maxPromptLength {most} is shorter than each of the {len(prompts)} prompts: the shortest has "
                f"{shortest} tokens. Raise it."
            )
        _log.warning("%s and are left out", what)
        return kept
    _log.warning("%s and are cut (%s)", what, data.overlong_prompts)
    return [_cut(prompt, most, data.overlong_prompts, tokenizer) for prompt in prompts]


def _cut(prompt: Prompt, most: int, part: str, tokenizer: PreTrainedTokenizerBase) -> Prompt:
    ids = prompt.token_ids
    if len(ids) <= most:
        return prompt
    begin = {"left": 0, "right": most, "middle": most // 2}[part]
    kept = ids[:begin] + ids[len(ids) - (most - begin) :]
    return replace(prompt, token_ids=kept, text=str(tokenizer.decode(list(kept))))


def tokenize(
    examples: list[Example], tokenizer: PreTrainedTokenizerBase, *, chat_template: str | None = None
) -> list[Prompt]:
    """Examples in tokens: conversations through the chat template with generation prompt, plain text as it is.

    Raises ValueError when there are conversations and the tokenizer has no chat template.
    """
    texts = [
        example.prompt if isinstance(example.prompt, str) else _chat_text(example.prompt, tokenizer, chat_template)
        for example in examples
    ]
    # The template writes the marks that a plain text gets from the tokenizer, bos for instance.
    plain = all(isinstance(example.prompt, str) for example in examples)
    encoded = tokenizer(texts, add_special_tokens=plain, return_attention_mask=False)["input_ids"]
    return [
        Prompt(
            index=index,
            token_ids=tuple(token_ids),
            text=text,
            ground_truth=example.ground_truth,
            solution=example.solution,
            data_source=example.data_source,
        )
        for index, (example, text, token_ids) in enumerate(zip(examples, texts, encoded, strict=True))
    ]


def _chat_text(
    conversation: list[dict[str, str]], tokenizer: PreTrainedTokenizerBase, chat_template: str | None
) -> str:
    if tokenizer.chat_template is None and chat_template is None:
        raise ValueError(
            f"The tokenizer of {tokenizer.name_or_path or 'the model'} has no chat template, which conversations need: "
            "take an instruct model, add chat_template.jinja to the model's folder, or give data.chatTemplate."
        )
    text = tokenizer.apply_chat_template(
        conversation, chat_template=chat_template, tokenize=False, add_generation_prompt=True
    )
    assert isinstance(text, str)
    return text
