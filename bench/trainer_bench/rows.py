"""The rows of the table by name."""

from __future__ import annotations

from importlib import import_module

from bench_report import Row

ROWS = {
    "weight-sync": "weight_sync:measure",
    "weight-sync-group": "weight_sync:measure_group",
    "weight-sync-bytes": "delta_sync:measure",
    "weight-sync-experts": "expert_sync:measure",
    "weight-sync-large-experts": "expert_sync:measure_bytes",
    "weight-sync-verified": "verified_sync:measure",
    "checkpoint": "checkpoint:measure",
    "checkpoint-bucket": "bucket:measure",
    "checkpoint-upload": "bucket:measure_upload",
    "passes": "passes:measure",
    "output-layer": "output_layer:measure",
    "driver": "driver_tokens:measure",
    "ranks": "ranks:measure",
    "environment": "conversations:measure",
    "tool": "conversations:measure_tool",
    "agents": "agent_load:measure",
    "agents-cpu": "agent_load:measure_cpu",
    "router": "router:measure",
    "prefix-cache": "prefix_cache:measure",
    "engine-idle": "engine_idle:measure",
    "step": "step_overhead:measure",
    "one-step-off": "one_step_off:measure",
    "trl": "against_trl:measure",
    "trl-short": "against_trl:measure_short",
}
"""Name -> module and function. The module is imported in the process that measures."""


def measure(name: str) -> Row:
    """Measure a row."""
    module, _, function = ROWS[name].partition(":")
    row = getattr(import_module(f"trainer_bench.{module}"), function)()
    assert isinstance(row, Row)
    return row
