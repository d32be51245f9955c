"""docs/scale.md has the tables that its script computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainer_bench.scale import render, render_syncs

TEXT = (Path(__file__).parents[2] / "docs/scale.md").read_text()


@pytest.mark.parametrize("table", [render(), render_syncs()], ids=["job", "syncs"])
def test_the_page_has_the_table(table: str) -> None:
    assert f"\n\n{table}\n\n" in TEXT, f"replace the table of docs/scale.md by this one:\n{table}"
