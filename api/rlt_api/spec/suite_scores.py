"""The scores of a suite by prompt, after its newest evaluation.

The trainer writes them to evaluation/SUITE/scores.json in the run directory, for `rlt compare`. Readers do not trust
the file: all fields have bounds.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field

from rlt_api.model import ApiModel, Count
from rlt_api.spec.suite_changes import Score

MAX_PROMPTS = 2**16


class PromptScores(NamedTuple):
    """The scores of the responses to a prompt. A response whose reward failed is left out."""

    total: Score
    scored: Annotated[int, Field(ge=1, le=2**20)]


class SuiteScores(ApiModel):
    """An evaluation by prompt."""

    step: Count
    prompts: Annotated[dict[Annotated[str, Field(max_length=64)], PromptScores], Field(max_length=MAX_PROMPTS)]
    """By number and digest of the prompt, as in the Parquet file of the evaluation. A prompt without scores is left
    out."""
