"""The tested model families run through the whole loop, and the page has the results of these runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from families_that_train import COLUMNS, PAGE, build_page, read_data
from trained_families import FAMILIES

RESULTS = read_data()["families"]
SAMPLE = ("Qwen3-MoE", "Gemma 3")
"""A mixture of experts with single experts in its files, and tied embeddings with sliding windows."""


def test_the_page_has_the_results_of_the_runs() -> None:
    assert list(RESULTS) == list(FAMILIES)
    assert PAGE.read_text() == build_page(read_data()), "run trainer/oracles/families_that_train.py --page"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "column"),
    [
        *((name, column) for name in SAMPLE for column in COLUMNS if column != "vllm"),
        *(("Qwen3-MoE", "vllm"), ("GLM-4 MoE", "vllm")),  # the second one changes the biases of its routers
    ],
)
def test_a_family_has_the_result_of_the_page(name: str, column: str, tmp_path: Path) -> None:
    assert COLUMNS[column](name, tmp_path) == RESULTS[name][column]["result"]
