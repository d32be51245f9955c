"""The rule math: compares the response's answer with the ground truth as mathematics."""

from __future__ import annotations

import logging

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify  # type: ignore[import-untyped]

# math_verify logs a warning for each call without its own time limit.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def math(response: str, ground_truth: str) -> float:
    """Return 1.0 if an answer in the response equals the ground truth (LaTeX), else 0.0.

    Equivalent to verl's math_verify.compute_score. The library is Math-Verify (github.com/huggingface/Math-Verify). Its
    time limits use alarms, which work only in a main thread. They are off here: the rule runs in a sandbox, which has
    its own time limit.

    Raises ValueError for a ground truth that cannot be parsed.
    """
    right = parse(f"\\boxed{{{ground_truth}}}", (LatexExtractionConfig(),), parsing_timeout=0)
    if not right:
        raise ValueError(f"the answer {ground_truth[:80]!r} cannot be parsed as mathematics")
    given = parse(response, (ExprExtractionConfig(), LatexExtractionConfig()), parsing_timeout=0)
    return float(any(verify(one, other, timeout_seconds=0) for one in right for other in given))
