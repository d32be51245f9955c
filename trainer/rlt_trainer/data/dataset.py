"""The prompts of a run in tokens, and which of them each step takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_trainer.data.encoding import fitted, tokenize
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.sources import read_examples


class PromptDataset:
    """The training prompts without end, epoch after epoch, in an order that depends on the seed alone.

    Any part of it can be taken at any time: resuming needs no state but the number of prompts that were taken.
    """

    def __init__(self, prompts: list[Prompt], *, seed: int, shuffle: bool, overlong: int = 0) -> None:
        assert prompts, "an empty data set is refused where it is read"
        self._prompts = prompts
        self._seed = seed
        self._shuffle = shuffle
        self.overlong = overlong
        """So many prompts were longer than data.maxPromptLength, and were left out or cut."""

    @classmethod
    def load(cls, data: Data, tokenizer: PreTrainedTokenizerBase, *, seed: int, run_directory: Path) -> Self:
        """Read or make the data, tokenize it and deal with prompts over data.maxPromptLength tokens.

        Published data sets are prepared to parquet in run_directory/data first. Raises ValueError, naming what is
        wrong and what to do, when the data is missing or malformed, when nothing is short enough, or without a needed
        chat template.
        """
        examples = read_examples(data, "train", seed=seed, run_directory=run_directory)
        tokenized = tokenize(examples, tokenizer, chat_template=data.chat_template)
        prompts, overlong = fitted(tokenized, data, tokenizer, name="training")
        return cls(prompts, seed=seed, shuffle=data.shuffle, overlong=overlong)

    def __len__(self) -> int:
        return len(self._prompts)

    def batch(self, step: int, size: int) -> list[Prompt]:
        """The `size` prompts of a step, counted from 0, where every step takes as many."""
        return self.take(step * size, size)

    def take(self, start: int, count: int) -> list[Prompt]:
        """The next `count` prompts after `start` were taken; it goes on into the next epoch where one ends."""
        taken: list[Prompt] = []
        while len(taken) < count:
            epoch, place = divmod(start + len(taken), len(self))
            taken += [self._prompts[i] for i in self._order(epoch)[place : place + count - len(taken)]]
        return taken

    def by_index(self, indices: Sequence[int]) -> list[Prompt]:
        """The prompts of these indices."""
        places = {prompt.index: prompt for prompt in self._prompts}
        return [places[index] for index in indices]

    def fingerprint(self) -> dict[str, Any]:
        """What a checkpoint remembers of the data and its order, to know them again."""
        digest = sha256()
        for prompt in self._prompts:
            digest.update(f"{prompt.index}\0{prompt.text}\0{prompt.ground_truth}\0".encode(errors="surrogatepass"))
        order = self._seed if self._shuffle else None
        return {"prompts": len(self), "order": order, "sha256": digest.hexdigest()}

    def epoch(self, taken: int) -> int:
        """The epochs that are over after so many prompts."""
        return taken // len(self)

    def metrics(self) -> dict[str, float]:
        """The size of the data set, and how many prompts were too long."""
        return {"data/prompts": float(len(self)), "data/overlong_prompts": float(self.overlong)}

    def _order(self, epoch: int) -> list[int]:
        if not self._shuffle:
            return list(range(len(self)))
        return [int(i) for i in np.random.default_rng([self._seed, epoch]).permutation(len(self))]


def other_data(saved: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """In what two fingerprints differ, for people. None: in nothing."""
    if saved["prompts"] != here["prompts"]:
        return f"{saved['prompts']} prompts, and here are {here['prompts']}"
    if saved["sha256"] != here["sha256"]:
        return f"as many prompts ({here['prompts']}) with other texts or answers"
    if saved["order"] != here["order"]:
        return "the same prompts in another order (data.shuffle, training.seed)"
    return None


@dataclass(frozen=True)
class ValidationSet:
    """The prompts to validate on, in the data's order."""

    prompts: Sequence[Prompt] = ()
    overlong: int = 0
    """So many were longer than data.maxPromptLength, and were left out or cut."""

    @classmethod
    def load(cls, data: Data, tokenizer: PreTrainedTokenizerBase, *, seed: int, run_directory: Path) -> Self:
        """Those of data.valFiles, data.hub.valSplit, or the preset's test split; empty where the job has none.

        Prompts that are too long are dealt with as those for training. Raises ValueError as PromptDataset.load.
        """
        examples = read_examples(data, "test", seed=seed, run_directory=run_directory)
        if not examples:
            return cls()
        tokenized = tokenize(examples, tokenizer, chat_template=data.chat_template)
        return cls(*fitted(tokenized, data, tokenizer, name="validation"))

    def metrics(self) -> dict[str, float]:
        """How many prompts were too long."""
        return {"val/overlong_prompts": float(self.overlong)}
