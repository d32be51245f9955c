"""The examples of docs/python.md that need no cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from python_page import read_examples, run_example


def test_the_page_shows_the_output_of_its_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    for code, text in (each for each in read_examples() if "client." not in each[0].text):
        run_example(code, text, variables)
