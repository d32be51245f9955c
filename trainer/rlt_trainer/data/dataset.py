"""The tokenized prompts of a run, and the selection of each step's prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_trainer.data.encoding import limit_prompt_length, tokenize
from rlt_trainer.data.epochs import Epochs
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.data.mixture import Mixture
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.sources import read_examples


class PromptDataset(Epochs[Prompt]):
    """An endless sequence of training prompts."""

    def __init__(
        self,
        prompts: list[Prompt],
        *,
        seed: int,
        shuffle: bool,
        overlong: int = 0,
        weights: Mapping[str, float] | None = None,
        curriculum_epochs: int = 0,
    ) -> None:
        """weights: by data source (data.mixture). Default: all prompts have the same. curriculum_epochs: the number of
        initial epochs in the order of difficulty (data.curriculum).

        Raises ValueError unless the sources of the prompts are those with a weight.
        """
        order: dict[str, Any] = {"seed": seed, "shuffle": shuffle, "curriculum_epochs": curriculum_epochs}
        super().__init__(prompts, difficulties=[prompt.difficulty or 0.0 for prompt in prompts], **order)
        self.overlong = overlong
        """Number of prompts longer than data.maxPromptLength, which were left out or truncated."""
        self._mixture = Mixture(prompts, weights, **order) if weights else None

    @classmethod
    def load(
        cls,
        data: Data,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int,
        run_directory: Path,
        tools: Sequence[Mapping[str, Any]] = (),
        processor: ImageProcessor | None = None,
    ) -> Self:
        """Read or generate the data, tokenize it, and handle prompts over data.maxPromptLength tokens.

        Published data sets are first converted to parquet in run_directory/data/PRESET. Raises ValueError with the
        problem and the fix if the data is missing or malformed, if every prompt is too long, or if a conversation has
        no chat template. Conversations describe `tools`, in OpenAI's schema. processor: for prompts with images.
        """
        examples = read_examples(data, "train", seed=seed, run_directory=run_directory)
        tokenized = tokenize(examples, tokenizer, chat_template=data.chat_template, tools=tools, processor=processor)
        prompts, overlong = limit_prompt_length(tokenized, data, tokenizer, name="training")
        weights = {each.source: each.weight for each in data.mixture}
        epochs = data.curriculum.epochs if data.curriculum else 0
        order: dict[str, Any] = {"seed": seed, "shuffle": data.shuffle, "curriculum_epochs": epochs}
        return cls(prompts, overlong=overlong, weights=weights, **order)

    def take(self, start: int, count: int) -> list[Prompt]:
        """As in Epochs. With a mixture, the prompts of each source have their own epochs."""
        return super().take(start, count) if self._mixture is None else self._mixture.take(start, count)

    def by_index(self, indices: Sequence[int]) -> list[Prompt]:
        """Return the prompts with these indices."""
        prompts = {prompt.index: prompt for prompt in self._rows}
        return [prompts[index] for index in indices]

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of the data and its order, which checkpoints store."""
        digest = sha256()
        for prompt in self._rows:
            digest.update(f"{prompt.index}\0{prompt.text}\0{prompt.ground_truth}\0".encode(errors="surrogatepass"))
            for image in prompt.images:
                digest.update(sha256(image).digest())
        given: dict[str, Any] = {} if self._mixture is None else {"mixture": self._mixture.describe()}
        if self._curriculum_epochs:
            difficulties = sha256(repr(self._difficulties).encode()).hexdigest()
            given["curriculum"] = [self._curriculum_epochs, difficulties]
        return {"prompts": len(self), "order": self.order, "sha256": digest.hexdigest(), **given}

    def metrics(self, taken: int) -> dict[str, float]:
        """Return the size of the data set, the number of overlong prompts and, with a mixture, the passes over each
        source in the first `taken` prompts.
        """
        epochs = {} if self._mixture is None else self._mixture.count_epochs(taken)
        return {
            "data/prompts": float(len(self)),
            "data/overlong_prompts": float(self.overlong),
            **{f"source/epochs/{source}": passes for source, passes in epochs.items()},
        }


def compare_fingerprints(saved: Mapping[str, Any], current: Mapping[str, Any]) -> str | None:
    """Describe the difference between two fingerprints. None if they are equal."""
    if saved["prompts"] != current["prompts"]:
        return f"{saved['prompts']} prompts instead of {current['prompts']}"
    if saved["sha256"] != current["sha256"]:
        return f"the same number of prompts ({current['prompts']}) with different texts or answers"
    if saved["order"] != current["order"]:
        return "the same prompts in a different order (data.shuffle, training.seed)"
    if saved.get("mixture") != current.get("mixture"):
        return "the same prompts in another mixture (data.mixture)"
    if saved.get("curriculum") != current.get("curriculum"):
        return "the same prompts with another curriculum (data.curriculum)"
    return None


@dataclass(frozen=True)
class EvaluationSet:
    """The prompts of a suite, in the data's order."""

    prompts: Sequence[Prompt]
    overlong: int = 0
    """Number of prompts longer than data.maxPromptLength, which were left out or truncated."""

    @classmethod
    def load(
        cls,
        data: Data,
        tokenizer: PreTrainedTokenizerBase,
        *,
        seed: int,
        run_directory: Path,
        tools: Sequence[Mapping[str, Any]] = (),
        processor: ImageProcessor | None = None,
    ) -> Self:
        """Read files, hub, or the preset's test split.

        Overlong prompts are handled as in PromptDataset.load. Raises the same ValueErrors.
        """
        examples = read_examples(data, "test", seed=seed, run_directory=run_directory)
        tokenized = tokenize(examples, tokenizer, chat_template=data.chat_template, tools=tools, processor=processor)
        return cls(*limit_prompt_length(tokenized, data, tokenizer, name="evaluation"))
