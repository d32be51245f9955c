"""The rule math: is the response's answer equal to the right one, as mathematics?"""

from __future__ import annotations

import logging

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify  # type: ignore[import-untyped]

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of every call without its own time limit


def math(response: str, ground_truth: str) -> float:
    """1.0 when an answer in the response equals the ground truth (LaTeX), else 0.0: verl's math_verify.compute_score.

    The library is Math-Verify (github.com/huggingface/Math-Verify). Its own time limits are alarms, which work in a
    main thread only, and are switched off here: the sandbox that this rule runs in has one.

    Raises ValueError for a ground truth that it cannot read.
    """
    right = parse(f"\\boxed{{{ground_truth}}}", (LatexExtractionConfig(),), parsing_timeout=0)
    if not right:
        raise ValueError(f"the answer {ground_truth[:80]!r} cannot be read as mathematics")
    given = parse(response, (ExprExtractionConfig(), LatexExtractionConfig()), parsing_timeout=0)
    return float(any(verify(one, other, timeout_seconds=0) for one in right for other in given))
