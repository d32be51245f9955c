"""The form of GSM8K's final answers. The data set and the reward rule both read it."""

from __future__ import annotations

import re

FINAL_ANSWER = re.compile(r"#### (-?[0-9.,]+)")
"""The end of a GSM8K answer, and of a response that follows the preset's instruction."""
