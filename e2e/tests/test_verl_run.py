"""verl 0.9.1 itself, on the CPU: its model merger."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file
from verl_jobs import VERL

from rlt_api.accelerator_defaults import add_accelerator_defaults
from rlt_api.blocks.model import Model, SeededModel
from rlt_api.frameworks.export import build_export
from rlt_api.frameworks.run import Run
from rlt_api.spec import RLTrainingJobSpec
from rlt_trainer.policy.model import prepare_model_files
from separate_environment import install

TOOLS = Path(__file__).parents[2] / "tools"
TINY = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}

pytestmark = pytest.mark.slow


def merge(python: Path, run: Run, step: int) -> Path:
    """Run the program that exports a job's checkpoint, without Ray. Return the folder of the model."""
    spec = RLTrainingJobSpec.model_validate(add_accelerator_defaults(VERL), by_alias=True, by_name=False)
    export = build_export(spec, run, on_a_worker=False)
    assert export
    assert export.command[0] == "python3"
    subprocess.run([python, *(word.replace("{step}", str(step)) for word in export.command[1:])], check=True)
    return Path(export.directory)


@pytest.fixture(scope="module")
def python() -> Path:
    return install("verl-cpu", "--no-deps", on_top=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return Path(prepare_model_files(Model(from_seed=SeededModel.model_validate(TINY)), folder))


def test_the_merged_model_has_the_weights_of_the_shards(python: Path, model: Path, tmp_path: Path) -> None:
    """verl saves two shards. Its merger rounds to bfloat16."""
    run = Run("tiny", "test", str(tmp_path))
    script = [python, "-W", "ignore", TOOLS / "save_verl_checkpoint.py", model]
    subprocess.run([*script, f"{run.checkpoints}/global_step_1/actor"], check=True)
    merged, weights = load_file(merge(python, run, 1) / "model.safetensors"), load_file(model / "model.safetensors")
    assert merged.keys() == weights.keys()
    assert all(merged[name].equal(weights[name].bfloat16()) for name in weights)
