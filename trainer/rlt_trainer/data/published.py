"""The published data sets GSM8K and MATH: from a folder with their files, or from the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_api.blocks.data import HubDataset
from rlt_api.spec.preset_data import PRESET_HUB
from rlt_trainer.data.gsm8k import build_gsm8k_rows, read_gsm8k_rows
from rlt_trainer.data.hendrycks_math import build_math_rows, read_math_rows
from rlt_trainer.data.prompt import Split
from rlt_trainer.data.tables import read_hub_rows

Row = dict[str, Any]


@dataclass(frozen=True)
class DataSet:
    """How a published data set is read."""

    read_folder: Callable[[Path, Split], list[Row]]
    """Reads the rows of a split from the published files."""
    build_rows: Callable[[Iterable[tuple[str, Row]], Split], list[Row]]
    """Builds the rows of a split from the location and the columns of each row on the hub."""
    hub: HubDataset
    """The copy that verl's script loads."""


DATA_SETS = {
    "gsm8k": DataSet(read_gsm8k_rows, build_gsm8k_rows, PRESET_HUB["gsm8k"]),
    "math": DataSet(read_math_rows, build_math_rows, PRESET_HUB["math"]),
}


def read_published(data_set: DataSet, folder: Path | None, hub: HubDataset, split: Split, field: str) -> list[Row]:
    """Read the rows of a split from `folder`, or without one from the hub. `field` names the hub's data set.

    Raises ValueError with the location and the fix.
    """
    if folder is not None:
        return data_set.read_folder(folder, split)
    rows = data_set.build_rows(_locate_rows(hub, split, field), split)
    if not rows:
        raise ValueError(f"{field} {hub.name}, split {split}: it is empty. Name another copy of the data set.")
    return rows


def _locate_rows(hub: HubDataset, split: Split, field: str) -> Iterator[tuple[str, Row]]:
    for number, row in read_hub_rows(hub, split, field):
        yield f"{field} {hub.name}, split {split}, row {number}", row
