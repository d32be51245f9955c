"""Fixtures that the tests of several packages share."""

from __future__ import annotations

import operator
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from gate import Gate
from hypothesis import settings

from rlt_e2e.check import FOLDERS
from rlt_e2e.environment import ROOT

# pytest replaces sys.modules["operator"] by the folder operator/ unless that module has a path, and then later imports
# of Python's own module fail (_pytest/pathlib.py, _import_module_using_spec).
operator.__path__ = [str(ROOT / "operator")]

if sys.version_info < (3, 11, 8):
    # To place its carets, a formatted traceback parses source lines. In a finalizer that the garbage collector runs
    # within ast.parse, that makes ast.parse raise SystemError: https://github.com/python/cpython/issues/106905
    traceback._extract_caret_anchors_from_line_segment = lambda segment: None

settings.register_profile("no-deadline", deadline=None)  # an example can take a second on a busy machine
settings.load_profile("no-deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fail for a test that no part runs: a marker in another folder than check.py names, or `long` alone."""
    for item in items:
        if item.get_closest_marker("long") and not any(item.get_closest_marker(each) for each in ("slow", "cluster")):
            raise pytest.UsageError(f"{item.nodeid} is marked long: also mark it slow or cluster")
        folder = item.path.relative_to(ROOT).parts[0]
        for marker, folders in FOLDERS.items():
            if item.get_closest_marker(marker) and folder not in folders:
                raise pytest.UsageError(f"{item.nodeid} is marked {marker}: add {folder} to FOLDERS of rlt_e2e.check")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate of the test's own."""
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()
