"""The rule math: compares the response's answer with the ground truth as mathematics."""

from __future__ import annotations

import logging

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify  # type: ignore[import-untyped]

from rlt_trainer.data.final_answer import extract_final_answer

# math_verify logs a warning for each call without its own time limit.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def math(response: str, ground_truth: str) -> float:
    """Return 1.0 if an answer in the response equals the ground truth (LaTeX), else 0.0.

    Equivalent to verl's math_verify.compute_score. The library is Math-Verify (github.com/huggingface/Math-Verify). Its
    time limits use alarms, which work only in a main thread. They are off here: the rule runs in a sandbox, which has
    its own time limit.

    A ground truth that is a whole solution counts as its final answer. Raises ValueError for one that cannot be parsed.
    """
    answer = extract_final_answer(ground_truth)
    right = parse(f"\\boxed{{{answer}}}", (LatexExtractionConfig(),), parsing_timeout=0)
    if not right:
        raise ValueError(f"the answer {answer[:80]!r} cannot be parsed as mathematics")
    given = parse(response, (ExprExtractionConfig(), LatexExtractionConfig()), parsing_timeout=0)
    return float(any(verify(one, other, timeout_seconds=0) for one in right for other in given))
