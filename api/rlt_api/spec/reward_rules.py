"""The rules for rewards[].name, and their options for rewards[].options."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from rlt_api.model import ApiModel

TagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=64)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class NoOptions(ApiModel):
    """For rules without options."""


class Gsm8kOptions(ApiModel):
    """How the number is extracted: verl's method."""

    method: Literal["strict", "flexible"] = "strict"
    """strict: the number after the last "#### ". flexible: the last number in the response."""


class FormatOptions(ApiModel):
    """The required format of a response."""

    tags: Annotated[list[TagName], Field(min_length=1, max_length=16)] = ["think", "answer"]
    """Sections in this order, such as <think>...</think>: each exactly once, without text outside of them."""
    pattern: Pattern | None = None
    """Instead of tags: a Python regular expression that the whole response matches; . also matches a newline."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        return pattern if pattern is None else validate_pattern(pattern)

    @model_validator(mode="after")
    def _tags_or_pattern(self) -> FormatOptions:
        if self.pattern is not None and "tags" in self.model_fields_set:
            raise ValueError("give tags or pattern, not both")
        return self


class LengthOptions(ApiModel):
    """The required length of a response."""

    min: Annotated[int, Field(ge=0)] = 0
    """The minimum."""
    max: Annotated[int, Field(ge=1)]
    """The maximum."""
    unit: Literal["characters", "words"] = "characters"
    """The unit of min and max."""

    @model_validator(mode="after")
    def _is_a_range(self) -> LengthOptions:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class RegexOptions(ApiModel):
    """The pattern to find in a response."""

    pattern: Pattern
    """A Python regular expression that matches somewhere in the response. If it has a group named answer,
    (?P<answer>...), that group of the last match must also equal the answer."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        return validate_pattern(pattern)


RULE_OPTIONS: dict[str, type[ApiModel]] = {
    "characters": NoOptions,
    "exact": NoOptions,
    "format": FormatOptions,
    "gsm8k": Gsm8kOptions,
    "length": LengthOptions,
    "math": NoOptions,
    "regex": RegexOptions,
}
"""Rule -> its options. The trainer has a function of the same name (rlt_trainer/rewards/rules.py)."""


def validate_pattern(pattern: str) -> str:
    """Return the pattern. Raises ValueError if Python cannot compile it."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return pattern
