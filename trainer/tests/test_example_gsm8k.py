"""Example 02 trains on questions in GSM8K's format, with one train worker and the engine transformers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import train
from word_problems import WORD_PROBLEMS, write_word_problems

from rlt_api.spec.training_config import TrainingConfig

ROOT = Path(__file__).parents[2]
BLOCKS = ("model", "rewards", "algorithm", "training")
STEPS = 3


@pytest.mark.slow
def test_gsm8k_prompts_contain_the_questions(tmp_path: Path, make_config: Callable[..., TrainingConfig]) -> None:
    spec: dict[str, Any] = yaml.safe_load((ROOT / "examples/02-gsm8k-grpo.yaml").read_text())["spec"]
    data = {**spec["data"], "path": str(write_word_problems(tmp_path / "gsm8k"))}
    config = make_config(workers=1, data=data, **{name: spec[name] for name in BLOCKS})
    metrics = train(config)
    assert len(metrics) == STEPS
    assert all(math.isfinite(value) for line in metrics for value in line.values())
    questions = [json.loads(line)["question"] for line in WORD_PROBLEMS.read_text().splitlines()]
    rollouts = (Path(config.run_directory) / "rollouts/step-1.jsonl").read_text().splitlines()
    prompts = [json.loads(line)["prompt"] for line in rollouts]
    assert prompts
    assert all(any(question in prompt for question in questions) for prompt in prompts)
