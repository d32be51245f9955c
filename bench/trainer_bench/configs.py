"""Configs of the trainer with a tiny model."""

from __future__ import annotations

from typing import Any

from rlt_api.spec.training_config import TrainingConfig

MODEL = {"seed": 1, "hiddenSize": 128, "intermediateSize": 512, "numHiddenLayers": 4, "numAttentionHeads": 4}
LOOPBACK = "127.0.0.1"


def build_config(folder: str, **changes: Any) -> TrainingConfig:
    """Build the config of one train worker on one core. Keywords replace fields of blocks."""
    config: dict[str, Any] = {
        "job": "bench",
        "namespace": "default",
        "runDirectory": folder,
        "workers": 1,
        "devicesPerWorker": 0,
        "cpusPerWorker": 1,
        "model": {"fromSeed": MODEL},
        "data": {"preset": "arithmetic", "maxPromptLength": 16, "maxResponseLength": 64},
        "rewards": [{"name": "exact"}],
        "algorithm": {},
        "training": {"totalSteps": 100, "trainBatchSize": 16, "ppoMiniBatchSize": 16, "learningRate": 1e-4},
        "rollout": {"engine": "transformers", "responsesPerPrompt": 4},
        "checkpoint": {},
        "observability": {},
    }
    for block, values in changes.items():
        config[block] = {**config.get(block, {}), **values} if isinstance(values, dict) else values
    return TrainingConfig.model_validate(config)
