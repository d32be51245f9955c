"""Where the examples of a job come from: a preset, files, the hub, or the job itself."""

from __future__ import annotations

import logging
from pathlib import Path

from rlt_api.blocks.data import Data
from rlt_trainer.data.arithmetic import arithmetic_examples
from rlt_trainer.data.bandit import bandit_examples
from rlt_trainer.data.digits import digits_examples
from rlt_trainer.data.gsm8k import gsm8k_rows
from rlt_trainer.data.hendrycks_math import math_rows
from rlt_trainer.data.prompt import Example, Split
from rlt_trainer.data.published import prepared
from rlt_trainer.data.tables import file_examples, hub_examples, inline_examples

_log = logging.getLogger(__name__)


def read_examples(data: Data, split: Split, *, seed: int, run_directory: Path) -> list[Example]:
    """The examples to train on, or those to validate on: none where the job has no data for that.

    Published data sets are prepared to parquet in run_directory/data first. Raises ValueError naming what is wrong.
    """
    if data.files is not None:
        return file_examples(data, split)
    if data.hub is not None:
        return hub_examples(data, split)
    if data.inline is not None:
        return inline_examples(data) if split == "train" else []
    if data.path is not None and data.preset not in ("gsm8k", "math"):
        _log.warning("data.path %s is not read: preset %s makes its own prompts", data.path, data.preset)
    match data.preset:
        case "gsm8k":
            return prepared(gsm8k_rows, data.path, run_directory / "data", split)
        case "math":
            return prepared(math_rows, data.path, run_directory / "data", split)
        case "bandit":
            return bandit_examples(seed)
        case "digits":
            return digits_examples(seed, split)
        case _:
            return arithmetic_examples(seed, split)
