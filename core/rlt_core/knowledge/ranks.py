"""What ranks print once a collective has timed out: which ones have lines, and how many reports are folded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

RANK = re.compile(rb"^[^\n\[]{0,120}\[[Rr]ank[ _]?(\d{1,6})\]", re.MULTILINE)
"""The prefix of a line with which torch names the rank that prints it."""
FOLDED = re.compile(r"\[repeated (\d{1,6})x across cluster\]")
"""What Ray adds to a line that stands for equal ones of other processes."""
MAX_LINE = 200
"""Maximum number of characters of a line."""
MAX_RANKS = 4096


@dataclass
class RankLines:
    """The ranks of a log."""

    last: dict[int, str] = field(default_factory=dict)
    """Rank -> its last line."""
    folded: int = 0
    """Number of reports of a timeout that other reports stand for."""

    def read(self, text: bytes) -> None:
        """Read the lines of a chunk."""
        starts = {int(match[1]): match.start() for match in RANK.finditer(text)}
        for rank, start in list(starts.items())[:MAX_RANKS]:
            line = text[start : start + MAX_LINE].partition(b"\n")[0]
            self.last[rank] = line.decode("utf-8", "replace").strip()

    def count(self, line: str) -> None:
        """Count the reports for which a line stands beside its own."""
        if folded := FOLDED.search(line):
            self.folded += int(folded[1])
