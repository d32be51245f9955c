"""The search for the pod that makes an all-reduce slow: the bandwidth between pairs of pods. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ROUNDS = 5
"""Maximum number of partners that each pod is measured with. One healthy partner shows that a pod is healthy."""
SLOW_SHARE = 0.5
"""A pod is slow if its best pair has less than this share of the median over the pods."""


@dataclass(frozen=True)
class Pair:
    """The bus bandwidth of two pods."""

    pods: tuple[str, str]
    bandwidth: float
    """Bytes per second; 0 if they could not reduce."""


def choose_rounds(pods: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Choose the pairs that are measured at the same time, in each round. No pod is in two pairs of a round.

    The circle method of a round-robin tournament: all pods but the first rotate.
    """
    fixed, *rest = [*pods, *([""] if len(pods) % 2 else [])]  # "": no partner in this round
    rounds = []
    for number in range(min(len(rest), MAX_ROUNDS)):
        order = [fixed, *rest[number:], *rest[:number]]
        pairs = [(order[index], order[-1 - index]) for index in range(len(order) // 2)]
        rounds.append([pair for pair in pairs if "" not in pair])
    return rounds


def find_slow_pods(pairs: Sequence[Pair]) -> list[str]:
    """Return the pods whose best pair is slower than SLOW_SHARE times the median of all pods' best pairs.

    The best pair of a healthy pod is one with another healthy pod. One pair does not show which of its pods is slow.
    """
    best: dict[str, float] = {}
    for pair in pairs:
        for pod in pair.pods:
            best[pod] = max(best.get(pod, 0.0), pair.bandwidth)
    if len(best) < 3:
        return []
    limit = SLOW_SHARE * median(best.values())
    return sorted(pod for pod, bandwidth in best.items() if bandwidth < limit)
