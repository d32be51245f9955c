"""The published data sets of presets on the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Mapping

from rlt_api.blocks.data import HubDataset

PRESET_HUB: Mapping[str, HubDataset] = {
    "gsm8k": HubDataset(name="openai/gsm8k", config="main"),
    "math": HubDataset(name="DigitalLearningGmbH/MATH-lighteval"),
}
"""Preset -> the copy that verl's examples/data_preprocess load."""
