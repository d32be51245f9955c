"""The published data sets of presets on the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Mapping

from rlt_api.blocks.data import Data, HubDataset

PRESET_HUB: Mapping[str, HubDataset] = {
    "gsm8k": HubDataset(name="openai/gsm8k", config="main"),
    "math": HubDataset(name="DigitalLearningGmbH/MATH-lighteval"),
}
"""Preset -> the copy that verl's examples/data_preprocess load."""


def find_hub_dataset(data: Data) -> HubDataset | None:
    """Return the data set on the hub that a job reads: data.hub, or the preset's without data.path. None if it reads
    none."""
    if data.hub is not None or data.path is not None:
        return data.hub
    return PRESET_HUB.get(data.preset or "")
