"""Whole runs of the trainer with Ray on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rlt_api.spec.training_config import TrainingConfig


def run_local(config: TrainingConfig) -> list[dict[str, float]]:
    """Train, and return the metrics of each step. Raises RuntimeError with the end of the log."""
    folder = Path(config.run_directory)
    file = folder / "config.json"
    file.write_text(config.model_dump_json(by_alias=True))
    command = [sys.executable, "-m", "rlt_trainer", "run", "--config", str(file), "--local"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the run failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
