"""Metrics of a step's speed under verl's names."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlt_api.blocks.operations import Profiler
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.telemetry.device_memory import Release
from rlt_trainer.telemetry.flops import Shape
from rlt_trainer.telemetry.spans import DRIVER, Span
from rlt_trainer.telemetry.speed import Work, compute_speed_metrics
from rlt_trainer.telemetry.worker_telemetry import GIB, Memory, WorkerReport, WorkerTelemetry

DRIVEN = [Span(DRIVER, "step", 0, 10, 1), Span(DRIVER, "gen", 0, 4, 1), Span(DRIVER, "update_actor", 4, 9, 1)]
WORK = Work([3, 2], [4, 1], Shape(weights=100, head_weights=10, attention=()), epochs=2)


def report(*, seconds: float = 4, peak: float | None = 1000, memory: Memory = Memory(1.0)) -> WorkerReport:  # noqa: B008
    return WorkerReport([Span(0, "update_actor", 5, 5 + seconds, 1)], memory, peak)


def test_times_add_up_and_tokens_are_counted() -> None:
    metrics = compute_speed_metrics(DRIVEN, [report(), report()], WORK, devices=2)
    phases = ("timing_s/gen", "timing_s/update_actor", "timing_s/unaccounted")
    assert [metrics[name] for name in phases] == [4, 5, 1]
    assert metrics["timing_s/step"] == sum(metrics[name] for name in phases)
    assert metrics["perf/unaccounted_share"] == 0.1
    assert metrics["timing_per_token_ms/gen"] == 4000 / 5
    assert metrics["timing_per_token_ms/update_actor"] == 5000 / 10
    assert metrics["perf/throughput"] == 10 / 10 / 2
    assert "overlap_s/gen" not in metrics


def test_separate_engines_share_the_tokens_and_overlap() -> None:
    engine = WorkerReport([Span(2, "gen", 2, 8, 1)], Memory(3.0), None)
    metrics = compute_speed_metrics(DRIVEN, [report()], WORK, devices=2, engines=[engine])
    assert metrics["overlap_s/gen"] == 4
    assert metrics["perf/throughput"] == 0.5
    assert metrics["perf/cpu_memory_used_gb"] == 3.0


def test_utilization_counts_the_slowest_rank_and_all_epochs() -> None:
    metrics = compute_speed_metrics(DRIVEN, [report(seconds=2), report(seconds=4)], WORK, devices=2)
    flops = 2 * (6 * 100 * 10 + 6 * 10 * 5)  # two epochs, logits only of responses
    assert metrics["perf/mfu/actor"] == pytest.approx(flops / 4 / 2000)
    assert "perf/mfu/actor_infer" not in metrics  # no old_log_prob in this step


@pytest.mark.parametrize("unknown", ["device", "architecture"])
def test_utilization_is_not_reported_if_it_is_unknown(unknown: str) -> None:
    peak, actor = (None, WORK.actor) if unknown == "device" else (1000, None)
    metrics = compute_speed_metrics(DRIVEN, [report(), report(peak=peak)], Work([1], [1], actor), devices=2)
    assert not [name for name in metrics if "mfu" in name]


def test_memory_is_the_maximum_over_the_ranks() -> None:
    reports = [report(memory=Memory(5.0, 1.0, 2.0)), report(memory=Memory(4.0, 1.5, 1.5))]
    metrics = compute_speed_metrics(DRIVEN, reports, WORK, devices=2)
    names = ("max_memory_allocated_gb", "max_memory_reserved_gb", "cpu_memory_used_gb")
    assert [metrics[f"perf/{name}"] for name in names] == [1.5, 2.0, 5.0]
    assert "perf/max_memory_allocated_gb" not in compute_speed_metrics(DRIVEN, [report()], WORK, devices=1)


def test_releases_are_the_maximum_over_the_ranks() -> None:
    figures = [Release(cached=2 * GIB, allocated=3 * GIB, reserved=4 * GIB), Release(GIB, 4 * GIB, 4 * GIB)]
    reports = [replace(report(), releases={"kv_cache": each}) for each in figures]
    metrics = compute_speed_metrics(DRIVEN, reports, WORK, devices=2)
    names = ("cached", "allocated", "reserved", "unused")
    assert [metrics[f"perf/release_{name}_gb/kv_cache"] for name in names] == [2, 4, 4, 1]
    assert not [name for name in compute_speed_metrics(DRIVEN, [report()], WORK, devices=1) if "release" in name]


def test_lengths_count_tokens_with_attention() -> None:
    sequences = Sequences.pad([[1], [1, 2]], [[3, 4], [5]], pad_token_id=0, chosen=[[True, False], [True]])
    assert Work.of(sequences, None).lengths == [3, 3]


def test_a_rank_measures_all_steps_and_profiles_the_selected_ones(tmp_path: Path) -> None:
    device = torch.device("cpu")
    profiles = tmp_path / "profiles"
    rank = WorkerTelemetry(1, device=device, dtype=torch.bfloat16, profiles=profiles, profiler=Profiler(steps=[2]))
    reports = []
    for step in (1, 2, 3):
        rank.begin(step)
        with rank.measure("gen"):
            torch.ones(8, 8) @ torch.ones(8, 8)
        reports.append(rank.end())
    assert [(each.phase, each.rank, each.step) for report in reports for each in report.spans] == [
        ("gen", 1, step) for step in (1, 2, 3)
    ]
    assert [file.name for file in profiles.iterdir()] == ["step-2-rank-1.json.gz"]
    with gzip.open(profiles / "step-2-rank-1.json.gz") as file:
        names = {event.get("name") for event in json.load(file)["traceEvents"]}
    assert {"rlt::gen", "aten::mm"} <= names
    assert reports[0].peak_flops is None
