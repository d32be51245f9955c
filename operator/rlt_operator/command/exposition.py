"""What the progress looks like to Prometheus: the names of rlt's own trainer, so that one dashboard fits both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rlt_operator.command.console import Progress, report, tokens_per_second

NAMES = {
    **{
        f"{verl}/{statistic}": f"rlt_trainer_{name}_{statistic}"
        for verl, name in (
            ("critic/rewards", "reward"),
            ("critic/score", "score"),
            ("critic/advantages", "advantage"),
            ("critic/returns", "return"),
            ("response_length", "response_length"),
            ("prompt_length", "prompt_length"),
        )
        for statistic in ("mean", "max", "min")
    },
    "actor/pg_loss": "rlt_trainer_policy_loss",
    "actor/kl_loss": "rlt_trainer_kl",
    "actor/kl_coef": "rlt_trainer_kl_coefficient",
    "actor/ppo_kl": "rlt_trainer_ppo_kl",
    "actor/entropy": "rlt_trainer_entropy",
    "actor/grad_norm": "rlt_trainer_grad_norm",
    "actor/lr": "rlt_trainer_learning_rate",
    "actor/pg_clipfrac": "rlt_trainer_clip_fraction",
    "actor/pg_clipfrac_lower": "rlt_trainer_clip_fraction_lower",
    "warmup/loss": "rlt_trainer_warmup_loss",
    "response_length/clip_ratio": "rlt_trainer_response_length_clip_ratio",
    "training/rollout_probs_diff_mean": "rlt_trainer_rollout_probs_diff_mean",
    "training/rollout_probs_diff_max": "rlt_trainer_rollout_probs_diff_max",
    "training/rollout_probs_diff_std": "rlt_trainer_rollout_probs_diff_std",
    "timing_s/step": "rlt_trainer_step_duration_seconds",
    "perf/time_per_step": "rlt_trainer_step_duration_seconds",
    "perf/throughput": "rlt_trainer_throughput_tokens_per_second_per_device",
    "perf/total_num_tokens": "rlt_trainer_step_tokens",
    "perf/mfu/actor": "rlt_trainer_model_flops_utilization",
    "training/global_step": "rlt_trainer_step",
    "training/epoch": "rlt_trainer_epoch",
}
"""verl's name -> the name in Prometheus: the same as in the trainer's list (rlt_trainer.telemetry.prometheus_names)."""

COUNTERS = ("rlt_trainer_tokens_total", "rlt_trainer_steps_total")


def exposition(seen: Progress, *, job: str, namespace: str) -> str:
    """The text that a scrape gets (https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4)."""
    target = {"job": job, "namespace": namespace}
    families: dict[str, dict[str, float]] = {}  # name -> labels -> value: a name's series stand together
    for name, labels, value in _series(seen):
        text = ",".join(f'{label}="{_escaped(content)}"' for label, content in {**target, **labels}.items())
        families.setdefault(name, {})[text] = value  # a name that is given twice has the later value
    lines = []
    for name, series in families.items():
        lines.append(f"# TYPE {name} {'counter' if name in COUNTERS else 'gauge'}")
        lines += [f"{name}{{{labels}}} {_number(value)}" for labels, value in series.items()]
    return "\n".join(lines) + "\n"


def _series(seen: Progress) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for key, value in seen.metrics.items():
        phase = key[len("timing_s/") :] if key.startswith("timing_s/") else None
        if key in NAMES:
            yield NAMES[key], {}, value
        elif phase:
            yield "rlt_trainer_step_seconds", {"phase": phase}, value
        else:
            yield "rlt_trainer_other", {"metric": key}, value
    yield "rlt_trainer_last_step_timestamp_seconds", {}, seen.updated
    said = report(seen)
    if said is not None:
        yield "rlt_trainer_step", {}, said["step"]
        yield "rlt_trainer_total_steps", {}, said["totalSteps"]
        yield "rlt_trainer_stage", {"stage": said["stage"]}, 1
    speed = tokens_per_second(seen)
    if speed is not None:
        yield "rlt_trainer_tokens_per_second", {}, speed
    yield "rlt_trainer_tokens_total", {}, seen.tokens
    yield "rlt_trainer_steps_total", {}, seen.steps


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf" if math.isinf(value) else repr(value)
