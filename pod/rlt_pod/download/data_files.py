"""The files of a data set on the hub that the library datasets reads (datasets 5.2, data_files.py and load.py).

Its card names the files of each configuration. A file that is missed here is downloaded when the data are read.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

METADATA = ("README.md", "dataset_infos.json", ".huggingface.yaml")
SUFFIXES = (".parquet", ".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt", ".arrow", ".tar", ".zip", ".gz", ".zst")
"""Names of data files, if the card names none."""


def select_data_files(names: Sequence[str], card: Mapping[str, Any], config: str | None) -> list[str]:
    """Select the files of a configuration, or of the default one, by the hub's `cardData`.

    The card alone if it has no such configuration: datasets then names those that exist.
    """
    configs = card.get("configs")
    patterns = list(_list_patterns(_find_config(configs, config))) if configs else [f"*{each}" for each in SUFFIXES]
    return [each for each in names if each in METADATA or any(_matches(each, pattern) for pattern in patterns)]


def _find_config(configs: Sequence[Mapping[str, Any]], name: str | None) -> Mapping[str, Any]:
    """Find a configuration. The default one is marked, named default, or alone. Empty if there is none."""
    if name is not None:
        candidates = [each for each in configs if each.get("config_name") == name]
    else:
        marked = [each for each in configs if each.get("default")]
        candidates = marked or [each for each in configs if each.get("config_name") == "default" or len(configs) == 1]
    return candidates[0] if candidates else {}


def _list_patterns(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the patterns of a configuration's files: texts, or objects of a split and its paths, or lists of these."""
    folder = str(config.get("data_dir") or "").strip("./")
    prefix = f"{folder}/" if folder else ""
    given = config.get("data_files")
    if given is None and config:
        yield from (f"{prefix}*{each}" for each in SUFFIXES)
    for each in given if isinstance(given, list) else [given]:
        paths = each.get("path") if isinstance(each, dict) else each
        yield from (
            f"{prefix}{path}".removeprefix("./") for path in (paths if isinstance(paths, list) else [paths]) if path
        )


def _matches(name: str, pattern: str) -> bool:
    """Whether a path matches: ** is any number of folders, also none."""
    return fnmatch(name, pattern) or fnmatch(name, pattern.replace("**/", ""))
