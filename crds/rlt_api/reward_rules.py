"""The rules that rewards[].name may be, and what rewards[].options may say to each."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from rlt_api.model import ApiModel

TagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=64)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class NoOptions(ApiModel):
    """For rules that have nothing to choose."""


class Gsm8kOptions(ApiModel):
    """How the number is found: verl's method."""

    method: Literal["strict", "flexible"] = "strict"
    """strict reads the number after the last "#### "; flexible the last number, whatever stands before it."""


class FormatOptions(ApiModel):
    """The form that a response should have."""

    tags: Annotated[list[TagName], Field(min_length=1, max_length=16)] = ["think", "answer"]
    """Sections in this order, such as <think>...</think>: each once, and nothing outside them."""
    pattern: Pattern | None = None
    """Instead of tags: a regular expression (Python's) that the whole response matches; . is also a line's end."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        return pattern if pattern is None else compiled(pattern)

    @model_validator(mode="after")
    def _one_of_both(self) -> FormatOptions:
        if self.pattern is not None and "tags" in self.model_fields_set:
            raise ValueError("give tags or pattern, not both")
        return self


class LengthOptions(ApiModel):
    """How long a response should be."""

    min: Annotated[int, Field(ge=0)] = 0
    """The least."""
    max: Annotated[int, Field(ge=1)]
    """The most."""
    unit: Literal["characters", "words"] = "characters"
    """What is counted."""

    @model_validator(mode="after")
    def _is_a_range(self) -> LengthOptions:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class RegexOptions(ApiModel):
    """What is looked for in a response."""

    pattern: Pattern
    """A regular expression (Python's) that is found somewhere in the response. Where it has a group named answer,
    (?P<answer>...), that group of the last match must be the answer, too."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        return compiled(pattern)


RULE_OPTIONS: dict[str, type[ApiModel]] = {
    "characters": NoOptions,
    "exact": NoOptions,
    "format": FormatOptions,
    "gsm8k": Gsm8kOptions,
    "length": LengthOptions,
    "math": NoOptions,
    "regex": RegexOptions,
}
"""Rule -> its options. The trainer has a function of that name for each (rlt_trainer/rewards/rules.py)."""


def compiled(pattern: str) -> str:
    """The pattern itself, where Python can compile it. Raises ValueError."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return pattern
