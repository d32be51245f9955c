"""The final answers in the solutions of GSM8K and MATH. The data sets and the reward rules read them."""

from __future__ import annotations

import re

FINAL_ANSWER = re.compile(r"#### (-?[0-9.,]+)")
"""The end of a GSM8K answer, and of a response that follows the preset's instruction."""


def extract_final_answer(solution: str) -> str:
    r"""Return the number after the last "#### ", the content of the last \boxed{...}, or the text if it has neither.

    The answer columns of GSM8K and MATH on the Hugging Face hub contain whole solutions.
    """
    if numbers := FINAL_ANSWER.findall(solution):
        return str(numbers[-1]).replace(",", "")
    boxed = extract_last_boxed(solution)
    return solution if boxed is None else boxed


def extract_last_boxed(solution: str) -> str | None:
    r"""Return the content of the last \boxed{...} or \fbox{...}, or the text from the last "\boxed " to the next $."""
    bare = solution.rfind("\\boxed ")
    begin = max(solution.rfind("\\boxed{"), solution.rfind("\\fbox{"))
    if bare > begin:
        return solution[bare + len("\\boxed ") :].partition("$")[0].strip()
    if begin < 0:
        return None
    first = solution.index("{", begin)
    depth = 0
    for place in range(first, len(solution)):
        depth += {"{": 1, "}": -1}.get(solution[place], 0)
        if depth == 0:
            return solution[first + 1 : place]
    return None
