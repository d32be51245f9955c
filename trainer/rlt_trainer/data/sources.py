"""The source of a job's examples: a preset, files, the hub, or the job itself."""

from __future__ import annotations

import logging
from pathlib import Path

from rlt_api.blocks.data import Data
from rlt_trainer.data.arithmetic import generate_arithmetic
from rlt_trainer.data.bandit import generate_bandit
from rlt_trainer.data.calculator import generate_calculator
from rlt_trainer.data.digits import generate_digits
from rlt_trainer.data.preset_files import convert_examples
from rlt_trainer.data.prompt import Example, Split
from rlt_trainer.data.published import DATA_SETS, Row, read_published
from rlt_trainer.data.tables import read_inline, read_table

_log = logging.getLogger(__name__)


def read_examples(data: Data, split: Split, *, seed: int, run_directory: Path) -> list[Example]:
    """Read or generate the examples. `split` selects the part of a preset.

    Published data sets are first converted to parquet in run_directory/data/PRESET. Raises ValueError if the data is
    invalid.
    """
    if data.files is not None or data.hub is not None:
        return read_table(data)
    if data.inline is not None:
        return read_inline(data)
    if data.path is not None and data.preset not in ("gsm8k", "math"):
        _log.warning("data.path %s is not read: preset %s generates its prompts", data.path, data.preset)
    match data.preset:
        case "gsm8k" | "math":
            data_set = DATA_SETS[data.preset]

            def read_rows(folder: Path | None) -> list[Row]:
                return read_published(data_set, folder, data_set.hub, split, f"data.preset {data.preset}:")

            return convert_examples(read_rows, data.path, run_directory / "data" / data.preset, split)
        case "calculator":
            return generate_calculator(seed, split)
        case "bandit":
            return generate_bandit(seed)
        case "digits":
            return generate_digits(seed, split)
        case _:
            return generate_arithmetic(seed, split)
