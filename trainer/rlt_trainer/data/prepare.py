"""`rlt-trainer prepare`: GSM8K or MATH as train.parquet and test.parquet with the columns of verl's
examples/data_preprocess."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rlt_trainer.data.preset_files import write_parquet
from rlt_trainer.data.prompt import Split
from rlt_trainer.data.published import DATA_SETS, DataSet, Row, read_published


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. No file is written unless both splits are valid. Raises ValueError with the fix."""
    options = build_parser().parse_args(arguments)
    data_set = DATA_SETS[options.data_set]
    splits = {split: read_split(data_set, options, split) for split in get_args(Split)}
    for split, rows in splits.items():
        file = options.output / f"{split}.parquet"
        write_parquet(rows, file)
        print(f"{file}: {len(rows)} rows")
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="rlt-trainer prepare", description="Write train.parquet and test.parquet in verl's format."
    )
    parser.add_argument("data_set", choices=DATA_SETS, help="the data set")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--path", type=Path, metavar="DIR", help="folder with the published files")
    names = ", ".join(each.hub.name for each in DATA_SETS.values())
    source.add_argument("--hub", nargs="?", const="", metavar="NAME", help=f"data set on the hub. Default: {names}")
    parser.add_argument("--config", metavar="NAME", help="configuration on the hub. Default: main for gsm8k")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the parquet files")
    return parser


def read_split(data_set: DataSet, options: argparse.Namespace, split: Split) -> list[Row]:
    """Read the rows of a split from --path or --hub. Raises ValueError with the option and the fix."""
    given = {"name": options.hub, "config": options.config}
    hub = data_set.hub.model_copy(update={key: value for key, value in given.items() if value})
    if options.path is None:
        return read_published(data_set, None, hub, split, "--hub")
    if not options.path.is_dir():
        raise ValueError(f"--path {options.path}: no such folder. Put the published files of the data set there.")
    try:
        return read_published(data_set, options.path, hub, split, "--hub")
    except ValueError as error:
        raise ValueError(f"--path: {error}") from error
