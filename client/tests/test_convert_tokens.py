"""Every token of a script is in the job or in a comment."""

from __future__ import annotations

import re

import pytest
from conversion import Conversion
from conversions import CONVERSIONS

from rlt.convert.convert import Target, convert
from rlt.convert.draft import ConvertError
from rlt.convert.words import split_words

YAML = re.compile(r"\s*(apiVersion|kind|defaults|actor_train|actor_rollout_ref|resources|type|\w+):(\s|$)")
SEPARATORS = ("\n", ";", ";;")
"""Operators that can be left out before the end of a list."""
SCRIPTS = tuple(each for each in CONVERSIONS if not YAML.match(each.source))


@pytest.mark.parametrize("case", SCRIPTS, ids=lambda case: case.name)
def test_a_script_without_one_token_is_another_job_or_has_other_comments(case: Conversion) -> None:
    assert find_unseen(case.source, case.to) == []


def find_unseen(source: str, to: Target) -> list[str]:
    """The places of tokens without which the job and its comments are the same."""
    whole = _convert(source, to)
    return [
        source[max(0, start - 20) : end + 10]
        for start, end in _list_tokens(source)
        if _convert(source[:start] + source[end:], to) == whole
    ]


def _convert(source: str, to: Target) -> str:
    try:
        return convert(source, "source", to).to_yaml("source")
    except ConvertError as error:
        return str(error)


def _list_tokens(source: str) -> list[tuple[int, int]]:
    """Start and end of each word and operator, also in #SBATCH lines."""
    found = [(word.start, word.end) for word in split_words(source) if word.text not in SEPARATORS]
    for line in re.finditer(r"^[ \t]*#SBATCH[ \t](.*?)([ \t]#.*)?$", source, re.MULTILINE):
        start = line.start(1)
        found += [(start + token.start(), start + token.end()) for token in re.finditer(r"\S+", line[1])]
    return found
