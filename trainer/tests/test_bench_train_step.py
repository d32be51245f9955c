"""The benchmark of a training step runs, and its figures are consistent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlt_trainer.telemetry.peak_flops import find_peak_flops

SCRIPT = Path(__file__).parents[2] / "bench/train_step.py"


@pytest.mark.slow
@pytest.mark.long
def test_a_tiny_step_is_measured_with_torch_and_transformers_only(device: str) -> None:
    command = [sys.executable, "-X", "importtime", str(SCRIPT), "--config", "tiny", "--device", device, "--steps", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["tokens_per_step"] == 256
    assert figures["tokens_per_second"] == pytest.approx(256 / figures["seconds_per_step"], rel=0.01)
    assert figures["peak_memory_gib"] > 0
    assert figures["device"].startswith("CPU") == (device == "cpu")
    assert (figures["mfu"] is None) == (find_peak_flops(figures["device"]) is None)
    assert figures["mfu"] is None or 0 < figures["mfu"] < 1
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "torch" in imported
    assert not imported & {"ray", "vllm", "pydantic", "rlt_api", "peft"}
