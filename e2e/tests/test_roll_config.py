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

import rlt_api
from rlt_api.frameworks.roll.settings import CONFIG_FILE, RESUME_VARIABLE, build_config, dump_config
from rlt_api.frameworks.roll.trial import RESUME
from rlt_pod.command import run_roll
from rlt_pod.command.run_roll import build_config_options
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


READ = """
import json, sys
from rlt_pod.command.run_roll import read_config
print(json.dumps(read_config(sys.argv[1], {"DEVICES": "16"})))
"""
FILES = {
    "config/envs.yaml": "system_envs: {NCCL_DEBUG: WARN}\n",
    "examples/rlvr.yaml": """
defaults: [../config/envs@_here_, _self_]
hydra: {run: {dir: .}, output_subdir: null}
max_steps: 500
actor_train: {device_mapping: "list(range(0,${oc.env:DEVICES}))"}
reference: {device_mapping: "${actor_train.device_mapping}"}
""",
    "examples/unknown.yaml": "response_length: ${sequence_length}\n",
    "examples/resume.yaml": f"resume_from_checkpoint: {RESUME}\n",
}


def test_launcher_reads_defaults_and_references(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    names = ("rlvr.yaml", "unknown.yaml", "none.yaml", "resume.yaml")
    found = {name: read_in_image(tmp_path / "examples" / name) for name in names}
    mapping = {"device_mapping": "list(range(0,16))"}
    settings = {"max_steps": 500, "actor_train": mapping, "reference": mapping}
    assert found["rlvr.yaml"] == {"system_envs": {"NCCL_DEBUG": "WARN"}, **settings}
    assert found["unknown.yaml"].startswith("InterpolationKeyError: Interpolation key 'sequence_length' not found")
    assert found["none.yaml"].startswith("MissingConfigException: Cannot find primary config 'none'")
    assert "Environment variable 'RLT_ROLL_CHECKPOINT' not found" in found["resume.yaml"]


def read_in_image(config: Path) -> Any:
    """Read a config with the launcher's function, without pydantic."""
    python = install("verl-config", "--no-deps")
    env = {**os.environ, "PYTHONPATH": f"{Path(run_roll.__file__).parents[2]}:{Path(rlt_api.__file__).parents[1]}"}
    return json.loads(subprocess.run([python, "-c", READ, config], env=env, check=True, capture_output=True).stdout)


def test_the_checkpoint_of_the_launcher_is_a_path(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(dump_config(resolve({}), RUN))
    (found,) = read([tmp_path], **{RESUME_VARIABLE: f"'{CHECKPOINT}'"})
    assert found["resume_from_checkpoint"] == CHECKPOINT
