"""An engine whose module notes the devices of its process at the import, when torch would count them."""

from __future__ import annotations

import os

from rlt_api.spec.training_config import TrainingConfig

NAMES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
SEEN = {name: os.environ[name] for name in NAMES if name in os.environ}


class Engine:
    """The part of a RolloutWorker that the test calls."""

    def __init__(self, config: TrainingConfig, number: int) -> None:
        """Do nothing."""

    async def seen(self) -> dict[str, str]:
        """Return the variables at the import of this module."""
        return SEEN
