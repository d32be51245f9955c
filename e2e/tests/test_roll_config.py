"""Hydra and OmegaConf, by which ROLL reads its config, read the values of jobs with framework roll."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from roll_jobs import TABLE, resolve
from verl_jobs import RUN

from rlt_api.frameworks.roll import CONFIG_FILE, RESUME_VARIABLE, build_config, dump_config
from rlt_core.command.run_roll import build_config_options
from separate_environment import install

SCRIPT = Path(__file__).parents[2] / "tools/compose_roll.py"
CHECKPOINT = "/mnt/rlt/runs/a b/20260101-000000/checkpoint-5"

pytestmark = pytest.mark.slow


def read(folders: list[Path], **variables: str) -> list[Any]:
    """Read the config in each folder."""
    python = install("verl-config", "--no-deps")
    relative = [build_config_options(f"{each}/{CONFIG_FILE}", [str(SCRIPT)])[1] for each in folders]
    command = [str(python), str(SCRIPT), *relative]
    done = subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True, text=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def test_hydra_reads_the_values_of_each_job(tmp_path: Path) -> None:
    specs = {name: resolve(changes) for name, changes in TABLE.items()}
    for name, spec in specs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / CONFIG_FILE).write_text(dump_config(spec, RUN))
    configs = read([tmp_path / name for name in specs])
    for spec, found in zip(specs.values(), configs, strict=True):
        expected = json.loads(json.dumps(build_config(spec, RUN)).replace("\\\\${", "${"))  # escaped for OmegaConf
        if spec.checkpoint.resume == "auto":
            expected["resume_from_checkpoint"] = False
        assert found == expected


def test_the_checkpoint_of_the_launcher_is_a_path(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(dump_config(resolve({}), RUN))
    (found,) = read([tmp_path], **{RESUME_VARIABLE: f"'{CHECKPOINT}'"})
    assert found["resume_from_checkpoint"] == CHECKPOINT
