"""Fixtures that the tests of several packages share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gate import Gate


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate of the test's own."""
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()
