"""The Prometheus names of verl's metrics, shared by servers, dashboards and alerts.

The labels job and namespace of every series identify the RLTrainingJob: without honorLabels, Prometheus renames
them to exported_job and exported_namespace. The module needs only Python 3.8 and its standard library, because it is
mounted into images that rlt does not build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

STEP = "rlt_trainer_step"
TOTAL_STEPS = "rlt_trainer_total_steps"
TOKENS_PER_SECOND = "rlt_trainer_tokens_per_second"
STAGE = "rlt_trainer_stage"
LATEST_CHECKPOINT_STEP = "rlt_trainer_latest_checkpoint_step"
LATEST_CHECKPOINT_TIMESTAMP = "rlt_trainer_latest_checkpoint_timestamp_seconds"
LAST_STEP_TIMESTAMP = "rlt_trainer_last_step_timestamp_seconds"
ENGINE_REQUESTS = "rlt_trainer_engine_requests"
TOKENS_TOTAL = "rlt_trainer_tokens_total"
STEPS_TOTAL = "rlt_trainer_steps_total"


@dataclass(frozen=True)
class Gauge:
    """A gauge for one of verl's metrics."""

    verl: str
    """Its key in the metrics of a step. "/*" at the end matches all keys with this prefix; the rest becomes a label."""
    name: str
    """Its name in Prometheus."""
    help: str
    """Its description with the unit."""
    rest_label: str | None = None
    """For "/*": the label with the rest of the key."""
    factor: float = 1.0
    """Base units of Prometheus in verl's unit."""


GIB = 2.0**30


def _spread(verl: str, name: str, help: str) -> list[Gauge]:
    return [
        Gauge(f"{verl}/{statistic}", f"rlt_trainer_{name}_{statistic}", f"{help}: {adjective} over the responses")
        for statistic, adjective in (("mean", "mean"), ("max", "maximum"), ("min", "minimum"))
    ]


def _deciles(verl: str, name: str, help: str) -> list[Gauge]:
    return [
        Gauge(
            f"{verl}/p{share}", f"rlt_trainer_{name}_p{share}", f"{help}: {share} % of the responses have at most this"
        )
        for share in (10, 90)
    ]


GAUGES: tuple[Gauge, ...] = (
    # Learning
    *_spread("critic/rewards", "reward", "Reward"),
    *_deciles("critic/rewards", "reward", "Reward"),
    *_spread("critic/score", "score", "Score before any penalty"),
    *_spread("critic/advantages", "advantage", "Advantage"),
    *_spread("critic/returns", "return", "Return"),
    *_spread("critic/values", "value", "Value that the critic predicts"),
    Gauge("actor/pg_loss", "rlt_trainer_policy_loss", "Policy loss"),
    Gauge("actor/kl_loss", "rlt_trainer_kl", "Mean KL divergence to the reference model by klLossType, in nats"),
    Gauge("actor/kl_coef", "rlt_trainer_kl_coefficient", "Weight of the KL term in the loss"),
    Gauge(
        "actor/reward_kl_penalty",
        "rlt_trainer_reward_kl",
        "Mean KL divergence to the reference model as a term of the reward, in nats",
    ),
    Gauge("actor/reward_kl_penalty_coeff", "rlt_trainer_reward_kl_coefficient", "Weight of the KL term in the reward"),
    Gauge("actor/ppo_kl", "rlt_trainer_ppo_kl", "KL divergence between the policy and the sampling policy, in nats"),
    Gauge("actor/entropy", "rlt_trainer_entropy", "Mean entropy of the next-token distribution, in nats"),
    Gauge(
        "actor/top_entropy_threshold",
        "rlt_trainer_top_entropy_threshold",
        "Lowest entropy of a token that the policy loss learns from, in nats",
    ),
    Gauge("actor/entropy_loss", "rlt_trainer_entropy_loss", "Entropy as a term of the loss, in nats"),
    Gauge(
        "distillation/loss",
        "rlt_trainer_distillation_loss",
        "Distillation loss, in nats: for k1 on-policy the reverse KL, for forward_kl_topk the forward KL of top tokens",
    ),
    Gauge(
        "distillation/student_mass",
        "rlt_trainer_distillation_student_mass_ratio",
        "Mean probability of the teacher's topk tokens under the policy",
    ),
    Gauge(
        "distillation/teacher_mass",
        "rlt_trainer_distillation_teacher_mass_ratio",
        "Mean probability of the teacher's topk tokens under the teacher",
    ),
    Gauge(
        "distillation/abs_loss",
        "rlt_trainer_distillation_distance",
        "Mean absolute difference between the log-probabilities of policy and teacher, in nats",
    ),
    Gauge("loss", "rlt_trainer_preference_loss", "DPO loss"),
    Gauge("rewards/chosen", "rlt_trainer_chosen_reward", "Implicit reward of the chosen responses: mean"),
    Gauge("rewards/rejected", "rlt_trainer_rejected_reward", "Implicit reward of the rejected responses: mean"),
    Gauge("rewards/margins", "rlt_trainer_reward_margin", "Chosen minus rejected implicit reward: mean over the pairs"),
    Gauge("rewards/accuracies", "rlt_trainer_reward_accuracy_ratio", "Share of pairs with a positive reward margin"),
    Gauge("actor/grad_norm", "rlt_trainer_grad_norm", "Norm of the gradient before clipping"),
    Gauge("actor/lr", "rlt_trainer_learning_rate", "Learning rate"),
    Gauge("actor/pg_clipfrac", "rlt_trainer_clip_fraction", "Share of tokens that PPO clipped"),
    Gauge("actor/pg_clipfrac_lower", "rlt_trainer_clip_fraction_lower", "Share of tokens that the dual clip clipped"),
    Gauge("actor/router_aux_loss", "rlt_trainer_router_aux_loss", "Load-balancing loss for a mixture of experts"),
    Gauge(
        "actor/expert_load_max",
        "rlt_trainer_expert_load_max",
        "Tokens of the busiest expert in a layer, as a multiple of the layer's mean, in the least balanced layer",
    ),
    Gauge(
        "actor/expert_load_entropy",
        "rlt_trainer_expert_load_entropy",
        "Entropy of the token distribution over the experts, as a share of its maximum, mean over the layers",
    ),
    Gauge(
        "actor/skipped_updates",
        "rlt_trainer_skipped_updates",
        "Optimizer steps of the step that were skipped because the gradient was not finite",
    ),
    Gauge("critic/vf_loss", "rlt_trainer_value_loss", "Value loss of the critic"),
    Gauge("critic/vf_clipfrac", "rlt_trainer_value_clip_fraction", "Share of values that were clipped"),
    Gauge("critic/vpred_mean", "rlt_trainer_value_prediction_mean", "Mean predicted value in the update"),
    Gauge(
        "critic/vf_explained_var",
        "rlt_trainer_value_explained_variance",
        "Share of the returns' variance that the values explain",
    ),
    Gauge("critic/grad_norm", "rlt_trainer_critic_grad_norm", "Norm of the critic's gradient before clipping"),
    Gauge("critic/lr", "rlt_trainer_critic_learning_rate", "Learning rate of the critic"),
    Gauge("critic/skipped_updates", "rlt_trainer_critic_skipped_updates", "The same as skipped_updates for the critic"),
    Gauge("warmup/step", "rlt_trainer_warmup_step", "Completed steps of the supervised warm-up"),
    Gauge("warmup/loss", "rlt_trainer_warmup_loss", "Cross-entropy of the supervised warm-up, in nats per token"),
    # Lengths
    *_spread("response_length", "response_length", "Response length in tokens"),
    *_deciles("response_length", "response_length", "Response length in tokens"),
    Gauge(
        "response_length/clip_ratio",
        "rlt_trainer_response_length_clip_ratio",
        "Share of responses truncated at maxResponseLength",
    ),
    *_spread("prompt_length", "prompt_length", "Prompt length in tokens"),
    *_spread("num_turns", "turns", "Turns of a conversation, or requests of an agent"),
    Gauge("sandbox/claims", "rlt_trainer_sandbox_claims", "Sandbox pods that were claimed since the last step"),
    Gauge(
        "sandbox/failed",
        "rlt_trainer_sandbox_failures",
        "Sandbox pods that were lost, and claims without a free one, since the last step",
    ),
    Gauge("sandbox/claim_seconds/p50", "rlt_trainer_sandbox_claim_seconds_p50", "Median time until a claim has a pod"),
    Gauge("sandbox/claim_seconds/p99", "rlt_trainer_sandbox_claim_seconds_p99", "The same: 99 % of the claims"),
    Gauge("data/responses", "rlt_trainer_responses", "Responses of the step"),
    Gauge("data/prompts", "rlt_trainer_prompts", "Prompts of the data set"),
    Gauge("data/overlong_prompts", "rlt_trainer_overlong_prompts", "Prompts over maxPromptLength, which are left out"),
    Gauge("data/prompts_consumed", "rlt_trainer_prompts_consumed", "Prompts taken from the data set since the start"),
    Gauge("train/num_gen_batches", "rlt_trainer_generations", "Generations of the step, with filterGroups"),
    Gauge(
        "training/staleness/mean",
        "rlt_trainer_staleness_steps_mean",
        "Optimizer steps since the weights that began a response: mean over the responses, with rollout.staleness",
    ),
    Gauge("training/staleness/max", "rlt_trainer_staleness_steps_max", "The same: maximum over the responses"),
    # Difference between rollout engine and trainer
    Gauge(
        "training/rollout_probs_diff_mean",
        "rlt_trainer_rollout_probs_diff_mean",
        "Mean difference of token probabilities between rollout engine and trainer; it should be below 0.01",
    ),
    Gauge(
        "training/rollout_probs_diff_max",
        "rlt_trainer_rollout_probs_diff_max",
        "Maximum of this difference",
    ),
    Gauge(
        "training/rollout_probs_diff_std",
        "rlt_trainer_rollout_probs_diff_std",
        "Standard deviation of this difference",
    ),
    Gauge(
        "training/weight_sync_difference",
        "rlt_trainer_weight_sync_difference",
        "Mean difference of log-probabilities between rollout engine and trainer after the latest weight sync",
    ),
    Gauge(
        "training/rollout_actor_probs_pearson_corr",
        "rlt_trainer_rollout_probs_correlation",
        "Pearson correlation of token probabilities between rollout engine and trainer",
    ),
    Gauge(
        "rollout_corr/*",
        "rlt_trainer_rollout_correction",
        "Difference between rollout engine and trainer, by the names in verl",
        rest_label="metric",
    ),
    # Speed
    Gauge("timing_s/step", "rlt_trainer_step_duration_seconds", "Duration of the whole step"),
    Gauge("timing_s/*", "rlt_trainer_step_seconds", "Duration of one phase in the step", rest_label="phase"),
    Gauge(
        "overlap_s/*",
        "rlt_trainer_overlap_seconds",
        "Time of a phase concurrent with other phases",
        rest_label="phase",
    ),
    Gauge(
        "timing_per_token_ms/*",
        "rlt_trainer_token_seconds",
        "Duration of one phase in the step per token",
        rest_label="phase",
        factor=1e-3,
    ),
    Gauge(
        "perf/idle_share",
        "rlt_trainer_idle_share",
        "Share of the step's accelerator time outside of generation, updates, weight syncs and validations, 0 to 1",
    ),
    Gauge("perf/unaccounted_share", "rlt_trainer_unaccounted_share", "Share of the step outside of all phases, 0 to 1"),
    Gauge(
        "perf/throughput",
        "rlt_trainer_throughput_tokens_per_second_per_device",
        "Prompt and response tokens per second and device",
    ),
    Gauge("perf/rollout_pods", "rlt_trainer_rollout_pods", "Number of pods that only generate and have the weights"),
    Gauge("perf/total_num_tokens", "rlt_trainer_step_tokens", "Prompt and response tokens of the step"),
    Gauge("perf/time_per_step", "rlt_trainer_step_duration_seconds", "Duration of the whole step"),
    Gauge("perf/mfu/actor", "rlt_trainer_model_flops_utilization", "Share of the peak FLOPS of the devices, 0 to 1"),
    Gauge(
        "perf/mfu/actor_infer",
        "rlt_trainer_inference_model_flops_utilization",
        "The same for log-probabilities",
    ),
    Gauge(
        "perf/mfu/critic",
        "rlt_trainer_critic_model_flops_utilization",
        "The same for the update of the critic",
    ),
    Gauge(
        "perf/max_memory_allocated_gb",
        "rlt_trainer_device_memory_allocated_bytes",
        "Peak memory of tensors, maximum of all devices",
        factor=GIB,
    ),
    Gauge(
        "perf/max_memory_reserved_gb",
        "rlt_trainer_device_memory_reserved_bytes",
        "Peak memory of torch's allocator, maximum of all devices",
        factor=GIB,
    ),
    Gauge(
        "perf/release_cached_gb/*",
        "rlt_trainer_release_cached_bytes",
        "Memory of the allocator without tensors before a colocated train worker releases it, maximum of all devices",
        rest_label="before",
        factor=GIB,
    ),
    Gauge(
        "perf/release_allocated_gb/*",
        "rlt_trainer_release_allocated_bytes",
        "Memory of tensors after this release",
        rest_label="before",
        factor=GIB,
    ),
    Gauge(
        "perf/release_reserved_gb/*",
        "rlt_trainer_release_reserved_bytes",
        "Memory of torch's allocator after this release",
        rest_label="before",
        factor=GIB,
    ),
    Gauge(
        "perf/release_unused_gb/*",
        "rlt_trainer_release_unused_bytes",
        "Memory of torch's allocator without tensors after this release",
        rest_label="before",
        factor=GIB,
    ),
    Gauge(
        "perf/cpu_memory_used_gb",
        "rlt_trainer_node_memory_used_bytes",
        "Used memory, maximum of all nodes",
        factor=GIB,
    ),
    # Rewards
    Gauge("reward/failed", "rlt_trainer_reward_failures", "Responses of the step whose reward failed"),
    Gauge("reward/failed/*", "rlt_trainer_reward_failures_by_reason", "The same by reason", rest_label="reason"),
    Gauge(
        "reward/failed_baselines",
        "rlt_trainer_reward_failed_baselines",
        "Share of the responses whose greedy response (remax) was not scored, 0 to 1",
    ),
    Gauge("reward/*", "rlt_trainer_reward_detail", "Rewards by name", rest_label="metric"),
    Gauge("val/*", "rlt_trainer_validation_overall", "Metrics over a whole suite of evaluation", rest_label="metric"),
    Gauge("val-core/*", "rlt_trainer_validation", "Mean score by suite and data source", rest_label="metric"),
    Gauge("source/score/*", "rlt_trainer_source_score", "Mean score by data source", rest_label="source"),
    Gauge(
        "source/responses/*",
        "rlt_trainer_source_responses",
        "Responses by data source",
        rest_label="source",
    ),
    Gauge("source/epochs/*", "rlt_trainer_source_epochs", "Passes over a data source", rest_label="source"),
    Gauge("data/difficulty", "rlt_trainer_difficulty", "Mean difficulty of the prompts (data.curriculum)"),
    # Progress
    Gauge("training/global_step", STEP, "Steps completed"),
    Gauge("training/epoch", "rlt_trainer_epoch", "Number of the current pass over the prompts, from 0"),
)
"""In the order of matching: an exact key precedes a "/*" that also matches it."""

OTHER = Gauge("*", "rlt_trainer_other", "A metric without its own name", rest_label="metric")
"""The gauge of every other key, so that no metric is lost."""

REPORTED: Mapping[str, str] = {
    TOTAL_STEPS: "Total number of steps",
    TOKENS_PER_SECOND: "Prompt and response tokens of the latest step per second, over all workers",
    STAGE: "1 for the current stage of the trainer: preparing, warmup, training, evaluating, exporting or finished",
    LATEST_CHECKPOINT_STEP: "Step of the latest complete checkpoint",
    LATEST_CHECKPOINT_TIMESTAMP: "Unix time of the latest complete checkpoint, or of the driver's start before one",
    ENGINE_REQUESTS: "Requests in the rollout engines (state running), and that wait for an engine (state waiting)",
    LAST_STEP_TIMESTAMP: "Unix time of the driver's latest progress, or of its start; time() minus it shows a hang",
}
"""Gauges from the progress report and the state of the driver."""

REPORTED_LABELS: Mapping[str, str] = {STAGE: "stage", ENGINE_REQUESTS: "state"}
"""Name in REPORTED -> its label besides job and namespace."""

COUNTERS: Mapping[str, str] = {
    TOKENS_TOTAL: "Prompt and response tokens trained on since the driver started",
    STEPS_TOTAL: "Steps completed since the driver started",
}

HELP: Mapping[str, str] = {
    **{gauge.name: gauge.help for gauge in (*GAUGES, OTHER)},
    **REPORTED,
    **COUNTERS,
}
"""Name -> description of every driver metric."""
NAMES: frozenset[str] = frozenset(HELP)


def find_gauge(key: str) -> tuple[Gauge, dict[str, str]]:
    """Return the gauge of one of verl's keys and its labels; OTHER for an unknown key."""
    for gauge in GAUGES:
        if gauge.verl == key:
            return gauge, {}
        prefix = gauge.verl[:-1]
        if gauge.rest_label is not None and key.startswith(prefix):
            return gauge, {gauge.rest_label: key[len(prefix) :]}
    return OTHER, {"metric": key}
