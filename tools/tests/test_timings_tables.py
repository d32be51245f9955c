"""The tables of docs/testing.md have every part and every test file."""

from __future__ import annotations

from timings import render


def test_a_file_has_a_row_for_each_part_with_the_sums_of_its_tests() -> None:
    tests = [
        {"test": "a/test_one.py::test_x", "seconds": 3.0, "cpu": 1.0, "part": "slow"},
        {"test": "a/test_one.py::test_y[1::2]", "seconds": 4.0, "cpu": 6.0, "part": "slow"},
        {"test": "a/test_one.py::test_z", "seconds": 20.0, "cpu": 15.0, "part": "slow-long"},
    ]
    text = render({"lint": 90.2, "slow": 8.0, "slow-long": 21.0}, tests)
    assert [line for line in text.splitlines() if line.startswith("| ")] == [
        "| part | tests | wall-clock s | CPU s of the tests | waiting s |",
        "| lint | | 90 | | |",
        "| slow | 2 | 8 | 7 | 2 |",
        "| slow-long | 1 | 21 | 15 | 5 |",
        "| file | part | tests | s | CPU s | waiting s |",
        "| `a/test_one.py` | slow-long | 1 | 20 | 15 | 5 |",
        "| `a/test_one.py` | slow | 2 | 7 | 7 | 2 |",
    ]
