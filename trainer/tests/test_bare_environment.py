"""The trainer without Ray, vLLM and the packages of its extras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import bare_environment
import pytest


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program printed, and its standard error."""
    command = [sys.executable, bare_environment.__file__, str(tmp_path_factory.mktemp("runs"))]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}


def test_all_modules_are_imported_and_the_loop_trains(outcome: dict[str, Any]) -> None:
    assert (outcome["misses"], outcome["steps"], outcome["imported"]) == ({}, [1, 2, 3], [])


@pytest.mark.parametrize(
    ("package", "setting", "extra"),
    [
        ("torchao", "training.optimizer: adamw_8bit", "optimizers"),
        ("mcp", "rollout.multiTurn.tools[0].mcp", "mcp"),
        ("wandb", "observability.wandb", "wandb"),
        ("tensorboard", "observability.tensorboard", "tensorboard"),
        ("debugpy", "observability.debugger: ray", "debug"),
        ("obstore", "storage.bucket", "bucket"),
    ],
)
def test_a_field_that_selects_a_missing_package_ends_the_run_before_ray_starts(
    outcome: dict[str, Any], package: str, setting: str, extra: str
) -> None:
    assert outcome["errors"][package] == (
        f"ValueError: {setting} requires the package {package}, which is not installed: install rlt-trainer[{extra}], "
        "use an image of rlt, or remove the setting."
    )


def test_without_such_a_field_the_run_gets_as_far_as_ray(outcome: dict[str, Any]) -> None:
    assert outcome["errors"]["ray"] == "ModuleNotFoundError: No module named 'ray'"


def test_an_endpoint_without_opentelemetry_is_a_warning(outcome: dict[str, Any]) -> None:
    assert outcome["traces"] is None
    assert "no traces are sent: OTEL_EXPORTER_OTLP_ENDPOINT requires the package opentelemetry" in outcome["stderr"]
    assert "install rlt-trainer[traces]" in outcome["stderr"]
