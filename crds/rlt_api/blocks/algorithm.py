"""spec.algorithm: how rewards become gradients."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.blocks.functions import PythonFunction
from rlt_api.blocks.model import ModelPath
from rlt_api.model import ApiModel, Positive, cel

Estimator = Literal[
    "grpo",
    "gae",
    "rloo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "opo",
    "grpo_passk",
]
KlEstimator = Literal["kl", "abs", "mse", "low_var_kl"]
LossKlEstimator = Literal["kl", "abs", "mse", "low_var_kl", "kl+", "abs+", "low_var_kl+"]
Rejection = Literal[
    "token_k1",
    "token_k2",
    "token_k3",
    "seq_sum_k1",
    "seq_sum_k2",
    "seq_sum_k3",
    "seq_mean_k1",
    "seq_mean_k2",
    "seq_mean_k3",
    "seq_max_k2",
    "seq_max_k3",
]
Coefficient = Annotated[float, Field(ge=0, le=100)]
Ratio = Annotated[float, Field(gt=0, lt=1)]


class KlControl(ApiModel):
    """A KL term in the reward: verl's algorithm.kl_ctrl."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """adaptive steers the coefficient to targetKl (arXiv 1909.08593)."""
    estimator: KlEstimator = "kl"
    """The estimator of the term: verl's algorithm.kl_penalty."""
    kl_coef: Coefficient = 0.001
    """The coefficient, or where it starts."""
    target_kl: Annotated[float, Field(gt=0, le=1000)] = 0.1
    """For adaptive: the KL divergence to steer to."""
    horizon: Positive = 10000
    """For adaptive: how slowly, in responses."""


class FilterGroups(ApiModel):
    """DAPO's dynamic sampling (arXiv 2503.14476): groups whose responses all score alike are left out, and further
    prompts are taken until the batch is full."""

    metric: Literal["acc", "score", "seq_reward"] = "acc"
    """What must differ within a group: acc is the first reward, score the weighted sum of all, seq_reward that with the
    penalty of overlongBuffer."""
    max_num_gen_batches: Annotated[int, Field(ge=0, le=1024)] = 0
    """At most so many generations for a step; where they do not suffice the run fails. 0: no bound."""


class OverlongBuffer(ApiModel):
    """DAPO's soft penalty on responses that come near the longest."""

    length: Positive
    """So many tokens before maxResponseLength it begins."""
    penalty_factor: Coefficient = 1.0
    """The penalty at the full length."""


class RolloutCorrection(ApiModel):
    """What is done about the difference between the engine's and the trainer's probabilities."""

    model_config = cel(
        ("has(self.rejection) == has(self.rejectionThreshold)", "rejection and rejectionThreshold go together"),
        (
            "!has(self.lowerThreshold) || !has(self.threshold) || self.lowerThreshold < self.threshold",
            "lowerThreshold must be below threshold",
        ),
    )

    level: Literal["token", "sequence", "none"] = "token"
    """What importance sampling weighs: each token, or each response as a whole; none: nothing is weighed."""
    threshold: Annotated[float, Field(gt=0, le=1e6)] = 2.0
    """Larger weights are cut to this, or with lowerThreshold made 0."""
    lower_threshold: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """IcePop: weights below this or above threshold are made 0. Default: none, weights are only cut."""
    rejection: Rejection | None = None
    """The statistic by which tokens or responses are left out of the loss: verl's rollout_rs. Default: none is."""
    rejection_threshold: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Its bound. For k1 ratios are kept within 1/threshold and threshold."""


class Critic(ApiModel):
    """The value model that advEstimator gae needs."""

    model_path: ModelPath | None = None
    """Where its weights start from, as for model.path: verl's critic.model.path. Default: the model's."""
    model_revision: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """A branch, tag or commit of modelPath on the hub, as for model.revision."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 1e-5
    """AdamW's learning rate, the same in all steps: verl's critic.optim.lr."""
    ppo_micro_batch_size_per_device: Positive | None = None
    """Responses in one pass of one device. Default: training.ppoMicroBatchSizePerDevice."""
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Steps at the start in which it learns and the policy does not: verl's trainer.critic_warmup."""
    cliprange_value: Annotated[float, Field(gt=0, le=1000)] = 0.5
    """Clip of the value loss: a value counts only as far as this from the one before the step."""
    enable_gradient_checkpointing: bool = False
    """Whether its activations are computed again in the backward pass instead of being kept. (verl: true.)"""
    use_remove_padding: bool = False
    """Whether its sequences are packed without padding; training.contextParallelSize needs that. (verl: true.)"""
    param_offload: bool = False
    """Whether its weights wait in the CPU's memory while they are not needed."""
    optimizer_offload: bool = False
    """Whether its optimizer's state waits in the CPU's memory while it is not needed."""


class Algorithm(ApiModel):
    """How rewards become gradients."""

    model_config = cel(
        (
            "!has(self.clipRatioLow) || !has(self.clipRatioHigh) || self.clipRatioLow <= self.clipRatioHigh",
            "clipRatioLow must not be above clipRatioHigh",
        ),
    )

    convention: Literal["verl", "trl"] = "verl"
    """Whose formulas are meant where they differ: docs/algorithms.md has the table."""
    adv_estimator: Estimator = "grpo"
    """grpo: the reward minus its group's mean, over its group's standard deviation (arXiv 2402.03300). The others have
    verl's names: docs/algorithms.md."""
    advantage_function: PythonFunction | None = None
    """A function of your own instead of advEstimator: docs/algorithms.md has its signature."""
    norm_adv_by_std_in_grpo: bool = True
    """Whether to divide by the group's standard deviation. false is Dr. GRPO (arXiv 2503.20783)."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Discount of later rewards, of gae and reinforce_plus_plus."""
    lam: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Lambda of gae."""
    policy_loss: Literal["vanilla", "gspo", "cispo", "sapo"] = "vanilla"
    """vanilla is PPO's clipped loss, gspo clips the ratio of whole responses, cispo and sapo weigh instead of clipping:
    verl's policy_loss.loss_mode."""
    policy_loss_function: PythonFunction | None = None
    """A function of your own instead of policyLoss: docs/algorithms.md has its signature."""
    tau_pos: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """For sapo: the temperature of positive advantages."""
    tau_neg: Annotated[float, Field(gt=0, le=1000)] = 1.05
    """For sapo: the temperature of negative advantages."""
    clip_ratio: Ratio = 0.2
    """PPO's clip: the ratio is kept within 1 - clipRatio and 1 + clipRatio."""
    clip_ratio_low: Ratio | None = None
    """The lower clip. Default: clipRatio."""
    clip_ratio_high: Annotated[float, Field(gt=0, le=100)] | None = None
    """The upper clip, DAPO's clip-higher. Default: clipRatio."""
    clip_ratio_c: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Dual clip: the bound of the ratio for negative advantages (arXiv 1912.09729). Default: none. (verl: 3.0.)"""
    kl_loss_coef: Coefficient = 0.001
    """Weight of the KL term to the reference model in the loss. 0: none, and no reference model but for klInReward."""
    kl_loss_type: LossKlEstimator = "low_var_kl"
    """The estimator of that term: low_var_kl is k3, kl is k1, mse is k2; with a + the gradient is that of k2."""
    kl_in_reward: KlControl | None = None
    """A KL term in the reward: verl's use_kl_in_reward and kl_ctrl. Default: none."""
    entropy_coeff: Coefficient = 0.0
    """Weight of the entropy bonus in the loss."""
    loss_agg_mode: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"] = (
        "token-mean"
    )
    """How the losses of tokens become one number. Denominators are global over the mini-batch; seq-mean-token-sum-norm
    (Dr. GRPO) also divides by maxResponseLength."""
    filter_groups: FilterGroups | None = None
    """DAPO's dynamic sampling. Default: none."""
    overlong_buffer: OverlongBuffer | None = None
    """DAPO's penalty on overlong responses. Default: none."""
    rollout_correction: RolloutCorrection | None = None
    """Importance sampling and rejection between engine and trainer. Default: none; the mismatch is reported anyway."""
    critic: Critic | None = None
    """The value model, which advEstimator gae needs and no other reads. Default: none."""
