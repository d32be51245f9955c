"""The rules by name: pure functions of a response without end-of-text token, the answer, and the rule's options."""

from __future__ import annotations

import re

CLIP_CHARACTERS = 300
"""How much of a response's end the gsm8k rule reads (_SOLUTION_CLIP_CHARS of verl 0.9.1)."""

FINAL_ANSWER = re.compile(r"#### (-?[0-9.,]+)")
"""How GSM8K, and who is asked to, ends an answer."""

_NUMBER = re.compile(r"-?[0-9.,]+")


def exact(response: str, ground_truth: str) -> float:
    """1.0 when the whole response, white space around it aside, is the ground truth, else 0.0."""
    return float(response.strip() == ground_truth)


def characters(response: str, ground_truth: str) -> float:
    """The share of the places, of the longer of both, at which response and ground truth have the same character.

    A dense reward, from which a policy with random weights learns: any right character pays, and so does an early end.
    """
    if response == ground_truth:
        return 1.0
    right = sum(said == true for said, true in zip(response, ground_truth, strict=False))
    return right / max(len(response), len(ground_truth))


def gsm8k(response: str, ground_truth: str, *, method: str = "strict") -> float:
    """1.0 when the number that is found in the response is the ground truth, else 0.0: verl.utils.reward_score.gsm8k.

    strict takes the number after the last "#### " (exactly one space), commas aside; flexible the last run of digits,
    dots and commas, as it stands ("1,000" is not "1000": so has it verl 0.9.1). Both compare text ("18.0" is not "18"),
    know ASCII digits only, and read the last 300 characters, however long the response is.
    """
    end = response[-CLIP_CHARACTERS:]
    if method == "strict":
        answers = [answer.replace(",", "") for answer in FINAL_ANSWER.findall(end)]
    else:
        found = _NUMBER.findall(end)
        answers = [answer for answer in found if answer != "."] or found
    return float(bool(answers) and answers[-1] == ground_truth)


def length(response: str, ground_truth: str, *, min: int = 0, max: int, unit: str = "characters") -> float:
    """1.0 when the response has between `min` and `max` characters or words, both included, else 0.0."""
    size = len(response) if unit == "characters" else len(response.split())
    return float(min <= size <= max)


def form(response: str, ground_truth: str, *, tags: list[str], pattern: str | None = None) -> float:
    """1.0 when the response consists of the sections `tags` in order, or matches `pattern` as a whole, else 0.0."""
    if pattern is not None:
        return float(re.fullmatch(pattern, response, re.DOTALL) is not None)
    rest = response.strip()
    for tag in tags:
        begin, end = f"<{tag}>", f"</{tag}>"
        if response.count(begin) != 1 or response.count(end) != 1 or not rest.startswith(begin):
            return 0.0
        rest = rest.partition(end)[2].lstrip()
    return float(not rest)


def regex(response: str, ground_truth: str, *, pattern: str) -> float:
    """1.0 when `pattern` is found, else 0.0. A group named answer, of the last match, must be the ground truth, too."""
    expression = re.compile(pattern)
    if "answer" not in expression.groupindex:
        return float(expression.search(response) is not None)
    answers = [(match["answer"] or "").strip() for match in expression.finditer(response)]
    return float(bool(answers) and answers[-1] == ground_truth)
