"""spec.algorithm: advantage estimation and policy loss."""

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
PolicyLoss = Literal["vanilla", "gspo", "cispo", "sapo", "geo_mean", "gpg", "dppo_tv", "dppo_kl", "clip_cov", "kl_cov"]
KlEstimator = Literal["kl", "abs", "mse", "low_var_kl"]
RouterReplay = Literal["disabled", "R2", "R3"]
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
    """fixed keeps the coefficient constant. adaptive adjusts it so that the KL divergence approaches targetKl (arXiv
    1909.08593)."""
    estimator: KlEstimator = "kl"
    """The estimator of the KL divergence: verl's algorithm.kl_penalty."""
    kl_coef: Coefficient = 0.001
    """The coefficient of the term. With type adaptive, its initial value."""
    target_kl: Annotated[float, Field(gt=0, le=1000)] = 0.1
    """The target KL divergence of type adaptive."""
    horizon: Positive = 10000
    """The number of responses over which type adaptive adjusts the coefficient."""


class FilterGroups(ApiModel):
    """DAPO's dynamic sampling (arXiv 2503.14476). Groups whose responses all have the same metric are discarded, and
    further prompts are sampled until the batch is full."""

    metric: Literal["acc", "score", "seq_reward"] = "acc"
    """The metric that must differ within a group: acc is the first reward, score the weighted sum of all rewards,
    seq_reward that sum with the penalty of overlongBuffer."""
    max_num_gen_batches: Annotated[int, Field(ge=0, le=1024)] = 0
    """The maximum number of generations per step. The run fails if they do not fill the batch. 0 means no maximum, but
    the run fails after 20 generations in a row that keep no group."""


class OverlongBuffer(ApiModel):
    """DAPO's soft penalty on responses near the maximum length."""

    length: Positive
    """The penalty starts this number of tokens before maxResponseLength."""
    penalty_factor: Coefficient = 1.0
    """The penalty at maxResponseLength."""


class RolloutCorrection(ApiModel):
    """Correction of the difference between the probabilities of the rollout engine and the trainer."""

    model_config = cel(
        (
            "!has(self.lowerThreshold) || !has(self.threshold) || self.lowerThreshold < self.threshold",
            "lowerThreshold must be below threshold",
        ),
    )

    level: Literal["token", "sequence", "none"] = "token"
    """The level of importance sampling: one weight for each token, one for each response, or none."""
    threshold: Annotated[float, Field(gt=0, le=1e6)] = 2.0
    """Larger weights are truncated to this value. With lowerThreshold, they are set to 0."""
    lower_threshold: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """IcePop: weights outside of lowerThreshold and threshold are set to 0. Default: none, weights are only
    truncated."""
    rejection: Rejection | None = None
    """The statistic that excludes tokens or responses from the loss: verl's rollout_rs. Default: none."""
    rejection_threshold: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """The bound of the statistic. For k1, ratios between 1/threshold and threshold are kept."""
    bypass_mode: bool = False
    """Whether the engine's log-probabilities count as the old policy's, without a forward pass for them: verl's
    bypass_mode. The ratio of the loss, and its clip, then include the difference. The other fields have no effect."""


class Critic(ApiModel):
    """The value model for advEstimator gae."""

    model_path: ModelPath | None = None
    """The initial weights, as in model.path: verl's critic.model.path. Default: the model's."""
    model_revision: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """The branch, tag or commit of modelPath on the Hugging Face hub."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 1e-5
    """The constant learning rate of AdamW: verl's critic.optim.lr."""
    ppo_micro_batch_size_per_device: Positive | None = None
    """Number of responses in a micro-batch of one device. Default: training.ppoMicroBatchSizePerDevice."""
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Number of initial steps that train only the critic and not the policy: verl's trainer.critic_warmup."""
    cliprange_value: Annotated[float, Field(gt=0, le=1000)] = 0.5
    """Clip range of the value loss: the maximum change of a value in a step that has an effect."""
    enable_gradient_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass instead of stored. Default: false, on GPUs true."""
    use_remove_padding: bool = False
    """Whether sequences are packed without padding. training.contextParallelSize requires it. Default: false, on GPUs
    true."""
    param_offload: bool = False
    """Offload the weights to CPU memory when idle."""
    optimizer_offload: bool = False
    """Whether the optimizer state is in CPU memory while it is not used."""


class Distillation(ApiModel):
    """On-policy distillation: the policy learns from a teacher's log-probabilities of the policy's responses."""

    model_path: ModelPath
    """The teacher, as in model.path, with the tokenizer of model.path: verl's distillation.teacher_models."""
    model_revision: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """The branch, tag or commit of modelPath on the Hugging Face hub."""
    loss_mode: Literal["k1", "forward_kl_topk"] = "k1"
    """The loss, by verl's names. k1: the reverse KL of the sampled tokens, as advantages of the policy loss
    (verl's use_policy_gradient). forward_kl_topk: the forward KL over the teacher's topk most likely tokens."""
    topk: Annotated[int, Field(ge=1, le=1024)] = 32
    """Number of the teacher's most likely tokens in forward_kl_topk, with verl's default. For each of them and each
    response token of a step, with padding, the driver needs 16 bytes."""
    log_prob_min_clamp: Annotated[float, Field(ge=-1000, lt=0)] | None = None
    """Lower log-probabilities count as this value in forward_kl_topk, and give the policy no gradient. Default: none,
    as in verl."""
    loss_coef: Coefficient = 1.0
    """Coefficient of the distillation loss: verl's distillation_loss_coef."""
    use_task_rewards: bool = True
    """Whether the policy also learns from the rewards. false: they are only metrics."""
    loss_max_clamp: Annotated[float, Field(gt=0, le=1000)] = 10.0
    """Maximum of a token's loss in forward_kl_topk, and of the difference between its log-probabilities in k1, in
    nats."""
    param_offload: bool = False
    """Offload the teacher's weights to CPU memory when idle."""


class Dpo(ApiModel):
    """Direct preference optimization (arXiv 2305.18290): the policy learns from pairs of a chosen and a rejected
    response in the data. No engine generates: rollout, rewards and the other fields of algorithm have no meaning."""

    beta: Annotated[float, Field(gt=0, le=100)] = 0.1
    """Factor of the log-probability difference between policy and reference. A higher value keeps the policy nearer
    to the reference: TRL's beta, with its default (DPOConfig in TRL 1.16)."""


class Algorithm(ApiModel):
    """Advantage estimation and policy loss."""

    model_config = cel(
        (
            "!has(self.clipRatioLow) || !has(self.clipRatioHigh) || self.clipRatioLow <= self.clipRatioHigh",
            "clipRatioLow must not be above clipRatioHigh",
        ),
    )

    convention: Literal["verl", "trl"] = "verl"
    """Whose formulas apply where verl and TRL differ. The table is in docs/algorithms.md."""
    adv_estimator: Estimator = "grpo"
    """The advantage estimator. grpo is the reward minus the mean of its group, divided by the standard deviation of the
    group (arXiv 2402.03300). The other names are verl's: see docs/algorithms.md."""
    advantage_function: PythonFunction | None = None
    """A user-defined function instead of advEstimator. Its signature is in docs/algorithms.md."""
    norm_adv_by_std_in_grpo: bool = True
    """Whether grpo divides by the standard deviation of the group. false is Dr. GRPO (arXiv 2503.20783)."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Discount factor of gae and reinforce_plus_plus."""
    lam: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Lambda of gae."""
    policy_loss: PolicyLoss = "vanilla"
    """The policy loss: verl's policy_loss.loss_mode. vanilla is PPO's clipped loss, gspo clips the ratio of whole
    responses, cispo and sapo weight tokens instead of clipping. geo_mean is GMPO, dppo_tv and dppo_kl leave out tokens
    whose probability changed by more than the clip range, and gpg has no ratio. clip_cov and kl_cov select the tokens
    whose probability rises most with their advantage: see docs/algorithms.md."""
    policy_loss_function: PythonFunction | None = None
    """A user-defined function instead of policyLoss. Its signature is in docs/algorithms.md."""
    tau_pos: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """The temperature of sapo for positive advantages."""
    tau_neg: Annotated[float, Field(gt=0, le=1000)] = 1.05
    """The temperature of sapo for negative advantages."""
    clip_cov_ratio: Annotated[float, Field(gt=0, le=1)] = 0.0002
    """Maximum share of the tokens of a mini-batch that clip_cov leaves out (arXiv 2505.22617), at least one token."""
    clip_cov_lb: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """Lower bound of the covariances among which clip_cov selects at random."""
    clip_cov_ub: Annotated[float, Field(ge=-1e6, le=1e6)] = 5.0
    """Upper bound of the covariances among which clip_cov selects at random."""
    kl_cov_ratio: Annotated[float, Field(gt=0, le=1)] = 0.0002
    """Share of the tokens of a mini-batch for which kl_cov adds the distance from the old policy (arXiv 2505.22617):
    those with the highest covariance, at least one."""
    ppo_kl_coef: Coefficient = 0.1
    """Coefficient of this distance in kl_cov."""
    clip_ratio: Ratio = 0.2
    """Clip range of PPO: ratios are clipped to 1 - clipRatio and 1 + clipRatio."""
    clip_ratio_low: Ratio | None = None
    """The lower clip range. Default: clipRatio."""
    clip_ratio_high: Annotated[float, Field(gt=0, le=100)] | None = None
    """The upper clip range, DAPO's clip-higher. Default: clipRatio."""
    clip_ratio_c: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Bound of the dual clip for negative advantages (arXiv 1912.09729). Default: none. (verl: 3.0.) With dppo_tv and
    dppo_kl, the upper bound of the ratio; default: 20."""
    kl_loss_coef: Coefficient = 0.0
    """Coefficient of the KL term to the reference model in the loss. 0, the default of verl, TRL, slime and prime-rl,
    has no term; the reference model is then loaded only for klInReward. verl's GRPO recipes set 0.001."""
    kl_loss_type: LossKlEstimator = "low_var_kl"
    """The estimator of the KL term: low_var_kl is k3, kl is k1, mse is k2. With a +, the gradient is k2's."""
    kl_in_reward: KlControl | None = None
    """A KL term in the reward: verl's use_kl_in_reward and kl_ctrl. Default: none."""
    entropy_coeff: Coefficient = 0.0
    """Coefficient of the entropy bonus in the loss."""
    router_aux_loss_coef: Coefficient = 0.0
    """Coefficient of the load-balancing loss for a mixture of experts (arXiv 2101.03961), the mean over sequences and
    layers. Only for families with router_aux_loss_coef in config.json, whose value is for pretraining and has no effect
    here."""
    router_bias_update_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Change of a router's correction bias in an optimizer step, up for experts with fewer tokens than the mean of
    their layer and down for those with more (arXiv 2412.19437, section 2.1.2): Megatron's moe_router_bias_update_rate.
    DeepSeek-V3 was pretrained with 0.001. Only for families with e_score_correction_bias, such as DeepSeek-V3 and
    GLM-4.5. 0: the biases stay as they are."""
    router_replay: RouterReplay = "disabled"
    """Which experts of a mixture the update sends a token to, by verl's names. disabled: the router's choice. R2: the
    experts that the forward pass for the old log-probabilities used. R3: the experts that the rollout engine used, also
    in that pass (arXiv 2510.11370). The current router weights them."""
    loss_agg_mode: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"] = (
        "token-mean"
    )
    """Aggregation of the token losses. Denominators are global over the mini-batch. seq-mean-token-sum-norm (Dr. GRPO)
    also divides by maxResponseLength."""
    filter_groups: FilterGroups | None = None
    """DAPO's dynamic sampling. Default: none."""
    overlong_buffer: OverlongBuffer | None = None
    """DAPO's penalty on overlong responses. Default: none."""
    mask_truncated_completions: bool = False
    """Whether responses of the maximum length are left out of the loss, because their reward does not follow from their
    tokens: TRL's mask_truncated_completions. They count in the statistics of their group."""
    top_entropy_quantile: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the tokens of a mini-batch that the policy loss learns from: those with the highest entropy (arXiv
    2506.01939, with 0.2): TRL's top_entropy_quantile. Below 1 each step has a forward pass for the entropies."""
    rollout_correction: RolloutCorrection | None = None
    """Importance sampling and rejection between rollout engine and trainer. Default: none; the difference is still
    reported."""
    critic: Critic | None = None
    """The value model for advEstimator gae. Default: none."""
    distillation: Distillation | None = None
    """A teacher to learn from, instead of the rewards or in addition. Default: none."""
    dpo: Dpo | None = None
    """Direct preference optimization on pairs instead of reinforcement learning. Default: none."""
