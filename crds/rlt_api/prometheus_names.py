"""The Prometheus names of verl's metrics, shared by servers, dashboards and alerts.

The labels job and namespace of every series are those of the RLTrainingJob: without honorLabels, Prometheus renames
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
LAST_STEP_TIMESTAMP = "rlt_trainer_last_step_timestamp_seconds"
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


def _spread(verl: str, name: str, help: str) -> list[Gauge]:
    return [
        Gauge(f"{verl}/{statistic}", f"rlt_trainer_{name}_{statistic}", f"{help}: {adjective} over the responses")
        for statistic, adjective in (("mean", "mean"), ("max", "maximum"), ("min", "minimum"))
    ]


GAUGES: tuple[Gauge, ...] = (
    # Learning
    *_spread("critic/rewards", "reward", "Reward"),
    *_spread("critic/score", "score", "Score before any penalty"),
    *_spread("critic/advantages", "advantage", "Advantage"),
    *_spread("critic/returns", "return", "Return"),
    Gauge("actor/pg_loss", "rlt_trainer_policy_loss", "Policy loss"),
    Gauge("actor/kl_loss", "rlt_trainer_kl", "Mean KL divergence to the reference model by klLossType, in nats"),
    Gauge("actor/kl_coef", "rlt_trainer_kl_coefficient", "Weight of the KL term in the loss"),
    Gauge("actor/ppo_kl", "rlt_trainer_ppo_kl", "KL divergence between the policy and the sampling policy, in nats"),
    Gauge("actor/entropy", "rlt_trainer_entropy", "Mean entropy of the next-token distribution, in nats"),
    Gauge("actor/grad_norm", "rlt_trainer_grad_norm", "Norm of the gradient before clipping"),
    Gauge("actor/lr", "rlt_trainer_learning_rate", "Learning rate"),
    Gauge("actor/pg_clipfrac", "rlt_trainer_clip_fraction", "Share of tokens that PPO clipped"),
    Gauge("actor/pg_clipfrac_lower", "rlt_trainer_clip_fraction_lower", "Share of tokens that the dual clip clipped"),
    Gauge("warmup/loss", "rlt_trainer_warmup_loss", "Cross-entropy of the supervised warm-up, in nats per token"),
    # Lengths
    *_spread("response_length", "response_length", "Response length in tokens"),
    Gauge(
        "response_length/clip_ratio",
        "rlt_trainer_response_length_clip_ratio",
        "Share of responses truncated at maxResponseLength",
    ),
    *_spread("prompt_length", "prompt_length", "Prompt length in tokens"),
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
        "rollout_corr/*",
        "rlt_trainer_rollout_correction",
        "Difference between rollout engine and trainer, by the names in verl",
        rest_label="metric",
    ),
    # Speed
    Gauge("timing_s/step", "rlt_trainer_step_duration_seconds", "Duration of the whole step"),
    Gauge("timing_s/*", "rlt_trainer_step_seconds", "Duration of one phase of the step", rest_label="phase"),
    Gauge(
        "overlap_s/*",
        "rlt_trainer_overlap_seconds",
        "Time of a phase concurrent with other phases",
        rest_label="phase",
    ),
    Gauge("perf/unaccounted_share", "rlt_trainer_unaccounted_share", "Share of the step outside of all phases, 0 to 1"),
    Gauge(
        "perf/throughput",
        "rlt_trainer_throughput_tokens_per_second_per_device",
        "Prompt and response tokens per second and device",
    ),
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
        "rlt_trainer_device_memory_allocated_gib",
        "Peak memory of tensors, maximum of all devices, in GiB",
    ),
    Gauge(
        "perf/max_memory_reserved_gb",
        "rlt_trainer_device_memory_reserved_gib",
        "Peak memory of torch's allocator, maximum of all devices, in GiB",
    ),
    Gauge("perf/cpu_memory_used_gb", "rlt_trainer_node_memory_used_gib", "Used memory, maximum of all nodes, in GiB"),
    # Rewards
    Gauge("reward/*", "rlt_trainer_reward_detail", "Rewards and their failures by name", rest_label="metric"),
    Gauge("val/*", "rlt_trainer_validation_overall", "Metrics over the whole validation set", rest_label="metric"),
    Gauge("val-core/*", "rlt_trainer_validation", "Mean score on a validation set", rest_label="metric"),
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
    STAGE: "1 for the current stage of the trainer: preparing, warmup, training, exporting or finished",
    LATEST_CHECKPOINT_STEP: "Step of the latest complete checkpoint",
    LAST_STEP_TIMESTAMP: "Unix time of the driver's latest progress, or of its start; time() minus it shows a hang",
}
"""Gauges from the progress report."""

COUNTERS: Mapping[str, str] = {
    TOKENS_TOTAL: "Prompt and response tokens trained on since the driver started",
    STEPS_TOTAL: "Steps completed since the driver started",
}

HELP: Mapping[str, str] = {
    **{gauge.name: gauge.help for gauge in (*GAUGES, OTHER)},
    **REPORTED,
    **COUNTERS,
}
"""Name -> description of every metric of a driver."""
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
