"""The scripts of ROLL in the command of a job."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlt_api.frameworks.arguments import read_words

ROLL_SCRIPT = re.compile(r"(?:.*/)?start_\w+_pipeline\.py")
"""The programs of ROLL, in its folder examples."""


def find_roll_script(command: Sequence[str]) -> tuple[int, str] | None:
    """Find the script of ROLL in a command: the item of the command, and the script."""
    return next(((index, word) for index, word in read_words(command) if ROLL_SCRIPT.fullmatch(word)), None)
