"""The rules: pure functions of a response without end-of-text token, the ground truth, and the rule's options."""

from __future__ import annotations

import re

from rlt_trainer.data.final_answer import FINAL_ANSWER, extract_final_answer

CLIP_CHARACTERS = 300
"""Number of characters at the end of a response that the gsm8k rule reads (_SOLUTION_CLIP_CHARS of verl 0.9.1)."""

_NUMBER = re.compile(r"-?[0-9.,]+")


def exact(response: str, ground_truth: str) -> float:
    """Return 1.0 if the response without leading and trailing white space is the ground truth, else 0.0."""
    return float(response.strip() == ground_truth)


def characters(response: str, ground_truth: str) -> float:
    """Return the share of positions, counted over the longer text, at which response and ground truth are equal.

    A dense reward that a policy with random weights can learn from: each correct character and an early end raise it.
    """
    if response == ground_truth:
        return 1.0
    equal = sum(given == expected for given, expected in zip(response, ground_truth, strict=False))
    return equal / max(len(response), len(ground_truth))


def gsm8k(response: str, ground_truth: str, *, method: str = "strict") -> float:
    """Return 1.0 if the number found in the response is the ground truth, else 0.0 (verl.utils.reward_score.gsm8k).

    strict takes the number after the last "#### " (exactly one space) and removes commas. flexible takes the last run
    of digits, dots and commas unchanged ("1,000" is not "1000", as in verl 0.9.1). Both compare text ("18.0" is not
    "18"), accept only ASCII digits, and read only the last 300 characters of the response. A ground truth that is a
    whole solution, as in the answer column on the hub, counts as its final answer. (verl requires the bare number.)
    """
    end = response[-CLIP_CHARACTERS:]
    if method == "strict":
        answers = [answer.replace(",", "") for answer in FINAL_ANSWER.findall(end)]
    else:
        found = _NUMBER.findall(end)
        answers = [answer for answer in found if answer != "."] or found
    return float(bool(answers) and answers[-1] == extract_final_answer(ground_truth))


def length(response: str, ground_truth: str, *, min: int = 0, max: int, unit: str = "characters") -> float:
    """Return 1.0 if the response has from `min` to `max` characters or words, both included, else 0.0."""
    size = len(response) if unit == "characters" else len(response.split())
    return float(min <= size <= max)


def form(response: str, ground_truth: str, *, tags: list[str], pattern: str | None = None) -> float:
    """Return 1.0 if the response consists of the sections `tags` in order, or fully matches `pattern`, else 0.0."""
    if pattern is not None:
        return float(re.fullmatch(pattern, response, re.DOTALL) is not None)
    rest = response.strip()
    for tag in tags:
        begin = f"<{tag}>"
        end = f"</{tag}>"
        if response.count(begin) != 1 or response.count(end) != 1 or not rest.startswith(begin):
            return 0.0
        rest = rest.partition(end)[2].lstrip()
    return float(not rest)


def regex(response: str, ground_truth: str, *, pattern: str) -> float:
    """Return 1.0 if `pattern` is found, else 0.0. If it has a group named answer, the group of the last match must also
    be the ground truth."""
    expression = re.compile(pattern)
    if "answer" not in expression.groupindex:
        return float(expression.search(response) is not None)
    answers = [(match["answer"] or "").strip() for match in expression.finditer(response)]
    return float(bool(answers) and answers[-1] == ground_truth)
