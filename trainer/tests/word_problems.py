"""Sixteen word problems in GSM8K's format, and GSM8K itself if RLT_GSM8K names its folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

WORD_PROBLEMS = Path(__file__).parent / "data/word_problems.jsonl"
GROUND_TRUTHS = [
    "37",
    "11400",
    "1300000",
    "-11",
    "-1255",
    "2.5",
    "6.85",
    "84",
    "80",
    "255",
    "90",
    "0",
    "500",
    "10",
    "12",
    "66",
]


def write_word_problems(folder: Path) -> Path:
    """Write the word problems as both splits of GSM8K. Return the folder."""
    folder.mkdir()
    for split in ("train", "test"):
        shutil.copy(WORD_PROBLEMS, folder / f"{split}.jsonl")
    return folder


def find_gsm8k() -> Path:
    """Return the folder with GSM8K's train.jsonl and test.jsonl. Skips the test if RLT_GSM8K does not name it."""
    folder = os.environ.get("RLT_GSM8K")
    if not folder:
        pytest.skip("RLT_GSM8K is not set to the folder with GSM8K's train.jsonl and test.jsonl")
    return Path(folder)
