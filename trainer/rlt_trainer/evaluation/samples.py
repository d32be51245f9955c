"""The scores of an evaluation, by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rlt_api.spec.suite_scores import MAX_PROMPTS, PromptScores, SuiteScores
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.data.final_answer import extract_final_answer
from rlt_trainer.data.prompt import Prompt


@dataclass(frozen=True)
class Samples:
    """The scores of n responses to each of P prompts."""

    indices: NDArray[np.int64]
    """[P]: Prompt.index."""
    ids: NDArray[np.str_]
    """[P]: identify_prompt."""
    sources: NDArray[np.str_]
    """[P]: the data source."""
    scores: NDArray[np.float64]
    """[P, n]: NaN if a reward failed."""
    answers: NDArray[np.int64]
    """[P, n]: the number of the first response to the prompt with the same final answer, from 0."""

    @classmethod
    def of(cls, batch: RolloutBatch, n: int) -> Self:
        """Take the samples of a batch. The `n` responses to a prompt are adjacent."""
        prompts = batch.prompts[::n]
        answers = [find_answer(text) for text in batch.texts]
        return cls(
            np.array([prompt.index for prompt in prompts], dtype=np.int64),
            np.array([identify_prompt(prompt) for prompt in prompts]),
            np.array([prompt.data_source for prompt in prompts]),
            batch.scores.total.double().numpy().reshape(-1, n),
            np.array([number_answers(answers[row : row + n]) for row in range(0, len(answers), n)], dtype=np.int64),
        )

    @property
    def n(self) -> int:
        """The number of responses to each prompt."""
        return int(self.scores.shape[1])

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Samples:
        """Return the samples of some prompts: a mask [P], or their rows."""
        return Samples(self.indices[rows], self.ids[rows], self.sources[rows], self.scores[rows], self.answers[rows])

    def pair(self, base: Samples) -> tuple[Samples, Samples]:
        """Return the samples of the prompts that both have, in the same order."""
        rows = {key: row for row, key in enumerate(base._keys())}
        common = [(row, rows[key]) for row, key in enumerate(self._keys()) if key in rows]
        pairs = np.array(common, dtype=np.int64).reshape(-1, 2)
        return self.select(pairs[:, 0]), base.select(pairs[:, 1])

    def summarize(self, step: int) -> SuiteScores:
        """Return the scores by prompt after `step`, of at most MAX_PROMPTS prompts."""
        parts = zip(self._keys(), np.nansum(self.scores, axis=1), np.isfinite(self.scores).sum(axis=1), strict=True)
        found = {f"{index}-{each}": PromptScores(float(total), int(n)) for (index, each), total, n in parts if n}
        return SuiteScores(step=step, prompts=dict(islice(found.items(), MAX_PROMPTS)))

    def _keys(self) -> list[tuple[int, str]]:
        return list(zip(self.indices.tolist(), self.ids.tolist(), strict=True))


def identify_prompt(prompt: Prompt) -> str:
    """Return 16 hexadecimal digits that are equal for the same text and answer."""
    text = f"{prompt.text}\0{prompt.ground_truth}"
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def number_answers(answers: Sequence[str]) -> list[int]:
    """Return, for each answer, the number of the first one that equals it."""
    first: dict[str, int] = {}
    return [first.setdefault(answer, number) for number, answer in enumerate(answers)]


def find_answer(text: str) -> str:
    r"""Return a response's final answer: after GSM8K's mark, in LaTeX's \boxed, or the whole response."""
    return extract_final_answer(text).replace(",", "").strip()
