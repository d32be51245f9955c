"""Lines that show that a program works: a completed step, a progress bar that moves, a successful end. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

STEP = re.compile(
    rb"""(?:
        \bstep:\d+[ ]-[ ]                                                      # verl, rlt
      | rlt-progress[ ]\{(?!"(?:stage":"(?:starting|preparing|failed)|step":[ ]?0\b))
      | \bstep[ _:=]{1,3}\d{1,9}(?:/\d{1,9})?[ ]?[:|,-][ ]?.{0,40}?(?:loss|reward|grad|kl)   # SkyRL, prime-rl, slime
      | \{'loss':[ ]|'train_runtime':[ ]                                       # Transformers, TRL
      | [Jj]ob[ ]'[\w-]{1,90}'[ ]succeeded                                     # ray job submit
      | Total[ ]step[ ]time:                                                   # NeMo-RL
      | \b[Tt]raining[ ](?:is[ ]|has[ ]|was[ ])?(?:complete|finish|done)
      | "stage":"finished"
    )""",
    re.VERBOSE | re.IGNORECASE,
)
STEP_WORDS = (b"step", b"Step", b"rlt-progress", b"'loss'", b"'train_runtime'", b"succeeded", b"raining", b"finished")
"""A line that shows progress contains one of these."""
BAR = re.compile(rb"(\d{1,9})/(\d{1,9}) \[\d[\d:]{0,12}<")
"""A progress bar of tqdm. A program that ends prints the last one again."""


NEAR = 100
"""Number of characters around a word of a step line that are searched."""
MAX_TRIED = 200
"""Maximum number of occurrences of a word that are examined, from the end."""


def find_last_progress(text: bytes) -> int:
    """The position after the last line that shows progress; 0 without one."""
    last = max(_find_last_step(text, word) for word in STEP_WORDS)
    if b"it/s" in text or b"s/it" in text:
        last = max(last, _find_last_move(text))
    return last


def _find_last_step(text: bytes, word: bytes) -> int:
    for position in _find_backwards(text, word):
        start = max(text.rfind(b"\n", 0, position) + 1, position - NEAR)
        if STEP.search(text, start, position + NEAR):
            return position
    return 0


def _find_last_move(text: bytes) -> int:
    """The position of the last progress bar with another number than the bar of the same length before it."""
    numbers: dict[bytes, bytes] = {}
    last = 0
    for position in sorted([*_find_backwards(text, b"it/s"), *_find_backwards(text, b"s/it")]):
        for match in BAR.finditer(text, max(0, position - NEAR), position):
            if numbers.get(match[2], match[1]) != match[1]:
                last = match.end()
            numbers[match[2]] = match[1]
    return last


def _find_backwards(text: bytes, word: bytes) -> Iterator[int]:
    """The last positions of a word, the last one first."""
    position = len(text)
    for _ in range(MAX_TRIED):
        position = text.rfind(word, 0, position)
        if position < 0:
            return
        yield position
