"""The rules themselves: pure functions of a response and the right answer."""

from __future__ import annotations

import re

CLIP_CHARACTERS = 300
"""How much of a response's end the gsm8k rule reads (_SOLUTION_CLIP_CHARS of verl 0.9.1)."""

FINAL_ANSWER = re.compile(r"#### (-?[0-9.,]+)")
"""How GSM8K, and who is asked to, ends an answer."""


def exact(response: str, ground_truth: str) -> float:
    """1.0 when the whole response, white space around it aside, is the ground truth, else 0.0."""
    return float(response.strip() == ground_truth)


def gsm8k(response: str, ground_truth: str) -> float:
    """1.0 when the number after the last "#### " of the response is the ground truth, commas aside, else 0.0.

    The strict rule of verl.utils.reward_score.gsm8k (verl 0.9.1): exactly one space, ASCII digits, the comparison is
    of text ("18.0" is not "18"), and only the last 300 characters are read, however long the response is.
    """
    answers = FINAL_ANSWER.findall(response[-CLIP_CHARACTERS:])
    return float(bool(answers) and answers[-1].replace(",", "") == ground_truth)
