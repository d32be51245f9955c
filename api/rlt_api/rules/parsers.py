"""spec.rollout.multiTurn: the parsers' names."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import replaceable
from rlt_api.rules.parser_names import REASONING_PARSERS, TOOL_PARSERS
from rlt_api.spec.job_spec import RLTrainingJobSpec

SIMILAR = 0.5
"""Similarity from which a name is suggested: difflib's ratio."""


def validate_parsers(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """multiTurn.format must be the name of a tool parser of vLLM, and multiTurn.reasoningParser the name of a reasoning
    parser."""
    multi_turn = spec.rollout.multi_turn
    if multi_turn is None:
        return
    for name, value, kind, known in (
        ("format", multi_turn.format, "tool", TOOL_PARSERS),
        ("reasoningParser", multi_turn.reasoning_parser, "reasoning", REASONING_PARSERS),
    ):
        if value is not None and value not in known:
            nearest = difflib.get_close_matches(value.lower(), known, cutoff=SIMILAR)
            message = f"is not the name of a {kind} parser of vLLM 0.32.0"
            field = f"spec.rollout.multiTurn.{name}"
            yield replaceable(field, value, message, *(nearest or known), rule="parser")


RULES = (validate_parsers,)
