"""The prompts of a suite whose score has changed since the evaluation before the first step.

The trainer writes them to evaluation/SUITE/changes.json in the run directory, and the page of a run shows them. Readers
do not trust the file: all fields have bounds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlt_api.model import ApiModel, Count, CutTo, Word

MAX_TEXT = 2000
"""Characters of a prompt, answer or response."""
MAX_SAMPLES = 20
"""Prompts with a higher score, and as many with a lower one."""
Score = Annotated[float, Field(ge=-1e300, le=1e300)]
Text = Annotated[str, CutTo(MAX_TEXT)]


class ChangedSample(ApiModel):
    """A prompt whose mean score has changed, with the response of each evaluation that shows the change most."""

    index: Annotated[int, Field(ge=-(2**53), le=2**53)]
    """The prompt's number in the data of the suite."""
    base_score: Score
    """Mean score of the prompt's responses before the first step."""
    score: Score
    """The same after the step."""
    prompt: Text | None = None
    """None: the file of the evaluation has no texts of this prompt."""
    answer: Text | None = None
    base_response: Text | None = None
    response: Text | None = None


class SuiteChanges(ApiModel):
    """The difference between two evaluations of a suite by prompt."""

    suite: Word
    step: Count
    """The step of the later evaluation. The earlier one has step 0."""
    prompts: Count
    """Number of prompts that have a score in both evaluations."""
    won: Count
    """Number of them with a higher score."""
    lost: Count
    """Number of them with a lower score."""
    samples: Annotated[list[ChangedSample], CutTo(2 * MAX_SAMPLES)] = []
    """The largest gains and the largest losses, each in the order of their size."""
