"""The order of a mixture (data.mixture): data sources take turns by their weights, each with its own epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor

from rlt_trainer.data.epochs import Epochs
from rlt_trainer.data.prompt import Prompt


class Mixture:
    """An endless sequence of prompts from several data sources. As in Epochs, any range can be read at any time."""

    def __init__(
        self,
        prompts: Sequence[Prompt],
        weights: Mapping[str, float],
        *,
        seed: int,
        shuffle: bool,
        curriculum_epochs: int = 0,
    ) -> None:
        """weights: by data source, as in data.mixture. curriculum_epochs: of each source (data.curriculum).

        Raises ValueError unless the sources of the prompts are those with a weight.
        """
        found = Counter(prompt.data_source for prompt in prompts)
        _validate_sources(found, weights)
        self._weights = dict(weights)
        by_source = {source: [each for each in prompts if each.data_source == source] for source in weights}
        self._parts = {
            source: Epochs(
                of,
                seed=seed,
                shuffle=shuffle,
                difficulties=[each.difficulty or 0.0 for each in of],
                curriculum_epochs=curriculum_epochs,
            )
            for source, of in by_source.items()
        }

    def take(self, start: int, count: int) -> list[Prompt]:
        """Return the `count` prompts after the first `start`."""
        order, before = list_sources(list(self._weights.values()), start, count)
        parts = list(self._parts.values())
        taken = [iter(part.take(before[k], order.count(k))) for k, part in enumerate(parts)]
        return [next(taken[k]) for k in order]

    def count_epochs(self, taken: int) -> dict[str, float]:
        """Return how often the prompts of each source were taken, among the first `taken` of the mixture."""
        _, before = list_sources(list(self._weights.values()), taken, 0)
        return {source: count / len(part) for (source, part), count in zip(self._parts.items(), before, strict=True)}

    def describe(self) -> list[list[str | float]]:
        """Return source, weight and number of prompts, as JSON for a checkpoint."""
        return [[source, weight, len(self._parts[source])] for source, weight in self._weights.items()]


def list_sources(weights: Sequence[float], start: int, count: int) -> tuple[list[int], list[int]]:
    """Return the source of each of `count` places after the first `start`, and the places of each source before them.

    Place n (from 0) of a source with share w is at time (n + 1/2) / w: the order in which Sainte-Lague's method awards
    seats. At time t each source has t w places, rounded, so that the shares of any range are exact to about one place,
    and any range follows from its start alone. Fractions make it exact: neither the place from which a run resumes
    nor the size of its batches changes the order.
    """
    total = sum(map(Fraction, weights))
    shares = [Fraction(weight) / total for weight in weights]
    first = [_count_places(share, start - len(shares)) for share in shares]
    last = [_count_places(share, start + count + len(shares)) for share in shares]
    times = sorted(
        ((number + Fraction(1, 2)) / share, source)
        for source, share in enumerate(shares)
        for number in range(first[source], last[source])
    )
    order = [source for _, source in times]
    skipped = order[: start - sum(first)]
    chosen = order[len(skipped) : len(skipped) + count]
    return chosen, [places + skipped.count(source) for source, places in enumerate(first)]


def _count_places(share: Fraction, time: int) -> int:
    """Return the number of places of a source up to a time."""
    return floor(share * max(time, 0) + Fraction(1, 2))


def _validate_sources(found: Mapping[str, int], weights: Mapping[str, float]) -> None:
    names = ", ".join(sorted(found))
    for source in weights:
        if source not in found:
            raise ValueError(
                f"data.mixture: source {source} has no prompts. The data has the sources {names}: correct or remove it."
            )
    for source in found:
        if source not in weights:
            raise ValueError(
                f"data.mixture: source {source} of the data has no weight. Add it, or leave its rows out with "
                "data.filters or data.files."
            )
