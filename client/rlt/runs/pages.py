"""Parts of a run directory that are too large to read at once: a page of rollouts, and the spans of one step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rlt.runs.directory import MAX_ROLLOUTS_BYTES, MAX_TEXT_LENGTH, ROLLOUTS, iterate_json_lines, shorten
from rlt.runs.rollouts import Rollout

SPANS = "spans.jsonl"
MAX_SPANS_BYTES = 32 * 2**20
"""About 7,000 steps of four ranks."""
MAX_SPANS = 5000
"""Maximum number of spans of a step."""
SPAN_KEYS = ("rank", "engine", "phase", "thread", "start", "end")
MAX_PAGE = 100
"""Maximum number of rollouts in a page."""
MAX_SEGMENTS = 200
"""Maximum number of segments of a rollout: the parts of a conversation."""
MAX_TOKENS = 4000
"""Maximum number of tokens of a rollout with their values."""
TOKEN_VALUES = ("advantages", "mismatches")
"""Values of each token in a rollout's `by_token`: numbers, or None."""
Order = Literal["recorded", "best", "worst", "highest-advantage", "lowest-advantage"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True)
class RolloutQuery:
    """Which rollouts of a step to read."""

    order: Order = "recorded"
    search: str = ""
    """Only rollouts whose prompt, response or ground truth contains this text in any case."""
    group: int | None = None
    """Only rollouts of the prompt with this index, with the values of their tokens."""
    grouped: bool = False
    """Only the first rollout of each prompt in the order."""
    offset: int = 0
    limit: int = 20


@dataclass(frozen=True)
class RolloutPage:
    """Rollouts of a step."""

    rollouts: list[dict[str, Any]]
    """Each with its `row` in the file, `difference` (its reward minus the mean reward of its prompt), and `siblings`:
    the number of rollouts of its prompt."""
    matched: int
    """Number of rollouts that match the query."""
    recorded: int
    """Number of rollouts that the step has recorded."""
    notes: tuple[str, ...]
    """What is missing, and why."""


def read_rollout_page(path: Path, step: int, query: RolloutQuery) -> RolloutPage:
    """Read a page of a step's rollouts from its file. Memory has one rollout at a time, and the page."""
    file = path / ROLLOUTS / f"step-{step}.jsonl"
    return select_page(lambda notes: iterate_json_lines(file, MAX_ROLLOUTS_BYTES, notes), query)


def select_page(read: Callable[[list[str]], Iterable[Rollout]], query: RolloutQuery) -> RolloutPage:
    """The page of a query. `read(notes)` iterates the rollouts of the step; it is called twice."""
    notes: list[str] = []
    rewards: list[tuple[int, float | None, Any]] = []
    matches: list[tuple[int, float, Any]] = []
    rank = RANKS[query.order]
    for row, rollout in enumerate(read(notes)):
        rewards.append((row, _get_number(rollout, "reward"), _get_index(rollout)))
        if _matches(rollout, query):
            matches.append((row, rank(rollout), _get_index(rollout)))
    matches.sort(key=lambda each: each[1])
    if query.grouped:
        matches = list(_take_first_of_each(matches))
    means = _compute_means(rewards)
    sizes = Counter(index for _, _, index in rewards if index is not None)
    chosen = [row for row, _, _ in matches[query.offset : query.offset + min(query.limit, MAX_PAGE)]]
    wanted = set(chosen)
    found = {}
    for row, rollout in enumerate(read([])):
        if row in wanted:
            reward = _get_number(rollout, "reward")
            index = _get_index(rollout)
            mean = means.get(index)
            difference = None if reward is None or mean is None else reward - mean
            segments = _shorten_segments(rollout.get("segments"))
            tokens = _shorten_tokens(rollout.get("by_token")) if query.group is not None else {}
            found[row] = {
                **shorten(rollout),
                **segments,
                **tokens,
                "row": row,
                "difference": difference,
                "siblings": sizes.get(index, 1),
            }
    return RolloutPage([found[row] for row in chosen if row in found], len(matches), len(rewards), tuple(notes))


def read_spans(path: Path, step: int) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The spans of a step in a run directory, and notes on what is missing: see `select_spans`."""
    if not (path / SPANS).exists():
        return [], (f"{SPANS} does not exist: the program records no spans.",)
    notes: list[str] = []
    spans = select_spans(iterate_json_lines(path / SPANS, MAX_SPANS_BYTES, notes), step, notes)
    return spans, tuple(notes)


def select_spans(lines: Iterable[Mapping[str, Any]], step: int, notes: list[str]) -> list[dict[str, Any]]:
    """The spans of a step. A resumed run repeats steps: the last time counts. Notes get what is missing.

    A span has rank (-1 is the driver), engine for an engine's span, phase, thread, and start and end as Unix time.
    """
    spans: list[dict[str, Any]] = []
    repeated = False
    for line in lines:
        if line.get("step") != step:
            repeated = bool(spans)
            continue
        if repeated:
            spans = []
            repeated = False
        if len(spans) < MAX_SPANS and _is_span(line):
            spans.append({key: line[key] for key in SPAN_KEYS if key in line})
    if len(spans) == MAX_SPANS:
        notes.append(f"Step {step} has more spans: the first {MAX_SPANS} are shown.")
    return spans


def _take_first_of_each(matches: Iterable[tuple[int, float, Any]]) -> Iterator[tuple[int, float, Any]]:
    """The first match of each prompt, and all matches without an index of their prompt."""
    seen = set()
    for match in matches:
        index = match[2]
        if index is None or index not in seen:
            seen.add(index)
            yield match


def _compute_means(rewards: Iterable[tuple[int, float | None, Any]]) -> dict[Any, float]:
    by_group: dict[Any, list[float]] = {}
    for _, reward, index in rewards:
        if reward is not None:
            by_group.setdefault(index, []).append(reward)
    return {index: math.fsum(values) / len(values) for index, values in by_group.items()}


def _matches(rollout: Rollout, query: RolloutQuery) -> bool:
    if query.group is not None and _get_index(rollout) != query.group:
        return False
    text = query.search.casefold()
    return not text or any(
        text in str(rollout.get(key, "")).casefold() for key in ("prompt", "response", "ground_truth")
    )


def _get_number(rollout: Rollout, key: str) -> float | None:
    value = rollout.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _rank_by(key: str, *, sign: int, absent: float) -> Callable[[Rollout], float]:
    """The rank of a rollout by a number: ascending with `sign` 1, descending with -1, and `absent` without one."""

    def rank(rollout: Rollout) -> float:
        value = _get_number(rollout, key)
        return absent if value is None else sign * value

    return rank


RANKS: Mapping[Order, Callable[[Rollout], float]] = {
    "recorded": lambda _: 0.0,
    "best": _rank_by("reward", sign=-1, absent=math.inf),
    "worst": _rank_by("reward", sign=1, absent=-math.inf),
    "highest-advantage": _rank_by("advantage", sign=-1, absent=math.inf),
    "lowest-advantage": _rank_by("advantage", sign=1, absent=math.inf),
}
"""Order -> rank of a rollout. A failed reward is the worst one. Rollouts without an advantage are last."""


def _get_index(rollout: Rollout) -> int | None:
    index = rollout.get("index")
    return index if isinstance(index, int) else None


def _shorten_segments(segments: object) -> dict[str, Any]:
    if not isinstance(segments, list):
        return {}
    kept = [each for each in segments[:MAX_SEGMENTS] if isinstance(each, Mapping)]
    return {
        "segments": [
            {
                "text": str(each.get("text", ""))[:MAX_TEXT_LENGTH],
                "learned": bool(each.get("learned")),
                **({"side": True} if each.get("side") is True else {}),
            }
            for each in kept
        ]
    }


def _shorten_tokens(values: object) -> dict[str, Any]:
    """`by_token` with the texts and values of the first MAX_TOKENS tokens. Empty if the texts are not recorded."""
    if not isinstance(values, Mapping) or not isinstance(values.get("texts"), list):
        return {}
    texts = [str(each) for each in values["texts"][:MAX_TOKENS]]
    columns = {name: values[name] for name in TOKEN_VALUES if isinstance(values.get(name), list)}
    numbers = {
        name: [each if isinstance(each, int | float) else None for each in column[: len(texts)]]
        for name, column in columns.items()
    }
    return {"by_token": {"texts": texts, **numbers}}


def _is_span(line: Mapping[str, Any]) -> bool:
    numbers = all(isinstance(line.get(key), int | float) for key in ("rank", "start", "end"))
    return numbers and isinstance(line.get("phase"), str)
