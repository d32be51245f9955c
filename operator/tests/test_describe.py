"""The status of a running job is at most two screens of `kubectl describe`, of 48 lines each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import observed as o
import yaml
from fabric.node_builders import node

from rlt_api.spec.training_config import ProgressReport
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.job import parse_job

EXAMPLE = yaml.safe_load((Path(__file__).parents[2] / "examples" / "01-arithmetic-grpo.yaml").read_text())
LINES = 2 * 48
"""30 of them are five conditions with the six fields of metav1.Condition."""
METRICS = {"reward": 0.5, "kl": 0.01, "entropy": 1.5, "response_length": 3.5, "loss": 0.1, "grad_norm": 0.7}


def describe(content: dict[str, Any]) -> Iterator[str]:
    """A custom resource as kubectl prints it, without indentation (printUnstructuredContent)."""
    for name, value in sorted(content.items()):
        if not isinstance(value, dict | list):
            yield f"{name}:\t{value}"
            continue
        yield f"{name}:"
        for each in value if isinstance(value, list) else [value]:
            yield from describe(each) if isinstance(each, dict) else [f"{each}"]


def build_running_status() -> dict[str, Any]:
    """The status of the example on two nodes with CPUs, at a step with all metrics."""
    job = o.decided(parse_job(o.manifest(EXAMPLE["spec"])), parse_nodes([node("a", {}, {}), node("b", {}, {})]))
    report: ProgressReport = o.report(tokens_per_second=900.0, metrics=METRICS)
    ray = replace(o.running(), progress=report)
    observed = o.recorded(replace(o.RUNNING, job=job))
    return o.after(replace(observed, ray=ray)).job.status.to_json()


def test_the_status_of_a_running_job_fits_two_screens() -> None:
    status = build_running_status()
    assert {"conditions", "progress", "network", "resolvedSpec"} <= set(status)
    lines = list(describe(status))
    assert 0.9 * LINES < len(lines) <= LINES
    assert not [line for line in lines if len(line.splitlines()) > 1]


def test_a_running_job_has_five_conditions() -> None:
    types = [each["type"] for each in build_running_status()["conditions"]]
    assert types == ["Accepted", "FabricVerified", "ClusterReady", "Running", "Reconciling"]


def test_an_empty_list_has_no_line() -> None:
    status = build_running_status()
    assert not {"attempts", "findings", "preflight", "prepared"} & set(status)
    assert set(status["network"]["attach"]) == {"mode", "computeDomain"}
