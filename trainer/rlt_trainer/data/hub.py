"""Rows of a data set on the Hugging Face hub, or of a folder that looks like one, by the library datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlt_api.blocks.data import HubDataset


def hub_rows(hub: HubDataset, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows with their numbers from 1. Raises ValueError when there is no such data set, configuration or split."""
    import datasets  # type: ignore[import-untyped] # seconds of imports that runs without it do not need

    try:
        rows = datasets.load_dataset(hub.name, hub.config, split=split, revision=hub.revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"data.hub {hub.name}, split {split}: it cannot be loaded ({reason}). Look at name, config, split and "
            "revision, and whether the pods reach the hub (HF_ENDPOINT, HF_TOKEN)."
        ) from error
    yield from enumerate(rows, start=1)
