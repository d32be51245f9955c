"""Phrases that the style guide replaces are found, and similar correct ones are not."""

from __future__ import annotations

import pytest

from check_terms import TERMS, find_terms, read_terms


def test_terms_are_found_across_line_breaks() -> None:
    terms = read_terms("# comment\n\\bold phrase\\b -> new word\n")
    assert list(find_terms("# An old\n# phrase.\n\nAn Old  phrase.", terms)) == [
        (1, "old # phrase", "new word"),
        (4, "Old phrase", "new word"),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a task of its own", ["of its own"]),
        ("def test_heads_have_tasks_of_their_own() -> None:", ["_of_their_own"]),
        ("its own task, a separate task", []),
        ("the log of the attempt of the job", ["log of the attempt of"]),
        ("def test_the_log_of_the_attempt_of_a_job() -> None:", ["_of_the_attempt_of_"]),
        ("the log of the attempt. Of the job's attempts", []),
        ("half of the number of pods, a divisor of the number of GPUs, the experts of a mixture of experts", []),
    ],
)
def test_chains_of_of_are_found(text: str, found: list[str]) -> None:
    assert [phrase for _, phrase, _ in find_terms(text, read_terms(TERMS.read_text()))] == found
