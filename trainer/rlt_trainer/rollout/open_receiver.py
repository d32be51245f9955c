"""Selection of the weight channel's receiving end, by its address."""

from __future__ import annotations

import torch

from rlt_trainer.rollout.delta_channel import join_group
from rlt_trainer.rollout.shared_channel import SharedReceiver
from rlt_trainer.rollout.weight_channel import ChannelAddress, SharedAddress, WeightReceiver


def open_receiver(address: ChannelAddress, device: torch.device) -> WeightReceiver:
    """Open the receiving end of the channel at `address`, for weights on `device`."""
    if isinstance(address, SharedAddress):
        return SharedReceiver(address, device)
    return join_group(address, device)
