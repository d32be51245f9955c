"""Direct preference optimization (arXiv 2305.18290). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import logsigmoid


@dataclass(frozen=True)
class Preferences:
    """The loss of each pair, and the implicit rewards of its responses. All are [B]."""

    loss: Tensor
    """With gradient."""
    chosen_rewards: Tensor
    rejected_rewards: Tensor

    def metrics(self) -> dict[str, Tensor]:
        """Return the values whose means are TRL's metrics: [B] each, without gradient."""
        chosen = self.chosen_rewards.detach()
        rejected = self.rejected_rewards.detach()
        return {
            "loss": self.loss.detach(),
            "rewards/chosen": chosen,
            "rewards/rejected": rejected,
            "rewards/accuracies": (chosen > rejected).to(chosen.dtype),
            "rewards/margins": chosen - rejected,
        }


def dpo_loss(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, *, beta: float) -> Preferences:
    """Compute equation 7 of the paper: loss_type sigmoid of DPOTrainer in TRL 1.16.0 (trl/trainer/dpo_trainer.py).

    The arguments are sums of log-probabilities over each response, under the policy and the reference: [B] each.
    """
    chosen_rewards = beta * (chosen - ref_chosen)
    rejected_rewards = beta * (rejected - ref_rejected)
    return Preferences(-logsigmoid(chosen_rewards - rejected_rewards), chosen_rewards, rejected_rewards)
