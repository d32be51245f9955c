"""Names and values of verl's metrics in Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rlt_api.spec.training_config import ProgressReport
from rlt_pod.report import prometheus_names as names
from rlt_trainer.rollout.vllm_metrics import reduce_families
from rlt_trainer.telemetry.exposition import Snapshot, build_families, label_engines

TARGET = {"job": "j", "namespace": "n"}
REPORT = ProgressReport(
    stage="training",
    step=3,
    total_steps=10,
    tokens_per_second=9.5,
    latest_checkpoint_step=2,
    updated="2026-01-01T00:00:00Z",
)


def scrape(metrics: dict[str, float], report: ProgressReport | None = None) -> dict[tuple[str, frozenset[str]], float]:
    """(name, label=value) -> value, parsed from the exposition format, without the labels that all series have."""
    snapshot = Snapshot(
        "j",
        "n",
        last_step_timestamp=1000.5,
        report=report,
        metrics=metrics,
        tokens=64.0,
        steps=2,
        checkpoint_timestamp=900.5,
        engine_requests={"running": 3, "waiting": 2},
    )

    class Snapshots(Collector):
        def collect(self) -> Iterable[Metric]:
            return build_families(snapshot)

    registry = CollectorRegistry()
    registry.register(Snapshots())
    samples = [s for f in text_string_to_metric_families(generate_latest(registry).decode()) for s in f.samples]
    assert all(sample.labels.items() >= TARGET.items() for sample in samples)
    return {
        (s.name, frozenset(f"{k}={v}" for k, v in s.labels.items() if k not in TARGET)): float(s.value) for s in samples
    }


@pytest.mark.parametrize(
    ("verl", "name", "labels"),
    [
        ("critic/rewards/mean", "rlt_trainer_reward_mean", []),
        ("actor/entropy", "rlt_trainer_entropy", []),
        ("actor/kl_loss", "rlt_trainer_kl", []),
        ("timing_s/gen", "rlt_trainer_step_seconds", ["phase=gen"]),
        ("timing_s/update_actor", "rlt_trainer_step_seconds", ["phase=update_actor"]),
        ("timing_s/step", "rlt_trainer_step_duration_seconds", []),
        ("perf/throughput", "rlt_trainer_throughput_tokens_per_second_per_device", []),
        ("training/global_step", "rlt_trainer_step", []),
        ("training/rollout_probs_diff_mean", "rlt_trainer_rollout_probs_diff_mean", []),
        ("overlap_s/gen", "rlt_trainer_overlap_seconds", ["phase=gen"]),
        ("perf/unaccounted_share", "rlt_trainer_unaccounted_share", []),
        ("val-core/openai/gsm8k/acc", "rlt_trainer_validation", ["metric=openai/gsm8k/acc"]),
        ("val-aux/openai/gsm8k/acc", "rlt_trainer_other", ["metric=val-aux/openai/gsm8k/acc"]),
        ("reward/failed", "rlt_trainer_reward_failures", []),
        ("reward/failed/timeout", "rlt_trainer_reward_failures_by_reason", ["reason=timeout"]),
        ("reward/length/mean", "rlt_trainer_reward_detail", ["metric=length/mean"]),
        ('odd"\n\\', "rlt_trainer_other", ['metric=odd"\n\\']),
    ],
)
def test_metrics_have_these_names_and_labels(verl: str, name: str, labels: list[str]) -> None:
    assert scrape({verl: 0.25})[name, frozenset(labels)] == 0.25


def test_values_are_in_base_units() -> None:
    served = scrape({"perf/max_memory_allocated_gb": 1.5, "timing_per_token_ms/gen": 2.0})
    assert served["rlt_trainer_device_memory_allocated_bytes", frozenset()] == 1.5 * 2**30
    assert served["rlt_trainer_token_seconds", frozenset({"phase=gen"})] == 0.002
    units = ("_gib", "_gb", "_ms", "_percent", "_minutes", "_hours")
    assert not [name for name in names.NAMES if name.endswith(units)]


def test_every_known_metric_is_served_under_a_listed_name() -> None:
    metrics = {gauge.verl.replace("*", "x"): float(value) for value, gauge in enumerate(names.GAUGES)}
    served = scrape(metrics, REPORT)
    assert {name for name, _ in served} == names.NAMES - {names.OTHER.name}
    distinct = {gauge.name for gauge in names.GAUGES}
    assert len(names.GAUGES) - len(distinct) == 1, "only timing_s/step and perf/time_per_step are the same quantity"


def test_the_progress_report_is_served() -> None:
    served = scrape({}, REPORT)
    assert served["rlt_trainer_step", frozenset()] == 3
    assert served["rlt_trainer_total_steps", frozenset()] == 10
    assert served["rlt_trainer_tokens_per_second", frozenset()] == 9.5
    assert served["rlt_trainer_latest_checkpoint_step", frozenset()] == 2
    assert served["rlt_trainer_stage", frozenset({"stage=training"})] == 1


def test_timestamp_and_counters_are_served_before_the_first_report() -> None:
    assert scrape({}) == {
        ("rlt_trainer_last_step_timestamp_seconds", frozenset()): 1000.5,
        ("rlt_trainer_latest_checkpoint_timestamp_seconds", frozenset()): 900.5,
        ("rlt_trainer_engine_requests", frozenset({"state=running"})): 3.0,
        ("rlt_trainer_engine_requests", frozenset({"state=waiting"})): 2.0,
        ("rlt_trainer_tokens_total", frozenset()): 64.0,
        ("rlt_trainer_steps_total", frozenset()): 2.0,
    }


def test_metrics_of_engines_have_the_engines_number() -> None:
    def read(value: float) -> Metric:
        """vLLM's histogram, as an engine reads it."""
        histogram = HistogramMetricFamily("vllm:latency_seconds", "Latency", labels=["model_name", "engine"])
        histogram.add_metric(["/tmp/model", "0"], [("1.0", 2), ("+Inf", 3)], sum_value=value)
        (family,) = reduce_families([histogram, CounterMetricFamily("python_gc_collections", "Collections", 1)])
        return family

    snapshot = Snapshot("j", "n", last_step_timestamp=0)
    (family,) = label_engines(snapshot, {0: [read(1.5)], 3: [read(2.5)]})
    assert (family.name, family.documentation, family.type) == ("vllm:latency_seconds", "Latency", "summary")
    assert {(s.name, s.labels["engine"], s.value) for s in family.samples} == {
        ("vllm:latency_seconds_sum", "0", 1.5),
        ("vllm:latency_seconds_count", "0", 3),
        ("vllm:latency_seconds_sum", "3", 2.5),
        ("vllm:latency_seconds_count", "3", 3),
    }
    assert all(sample.labels.keys() == {"job", "namespace", "engine"} for sample in family.samples)


def test_values_that_are_not_finite_are_served_unchanged() -> None:
    served = scrape({"actor/grad_norm": math.nan, "actor/pg_loss": -math.inf})
    assert math.isnan(served["rlt_trainer_grad_norm", frozenset()])
    assert served["rlt_trainer_policy_loss", frozenset()] == -math.inf


def test_names_follow_prometheus_rules() -> None:
    assert all(re.fullmatch(r"rlt_trainer_[a-z0-9_]+", name) for name in names.NAMES)
    assert all(name.endswith("_total") for name in names.COUNTERS)
    assert not any(name.endswith("_total") for name in names.NAMES - names.COUNTERS.keys())
