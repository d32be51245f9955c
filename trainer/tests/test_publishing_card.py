"""The model card: huggingface_hub reads its metadata, and its numbers are the run's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.evaluation.gate import Gate
from rlt_trainer.publishing.card import build_card

MakeConfig = Callable[..., TrainingConfig]
SUITES: list[dict[str, Any]] = [
    {"name": "math", "every": 3, "beforeTrain": True, "promoteIf": {"gainAbove": 0}},
    {"name": "aime", "every": 3, "data": {"files": ["/mnt/rlt/secret-project/aime.jsonl"]}, "responsesPerPrompt": 4},
    {"name": "early", "beforeTrain": True},
]
METRICS = {
    "val/math/reward/mean": 0.625,
    "val/math/reward/low": 0.6,
    "val/math/reward/high": 0.65,
    "val/math/reward/gain": 0.1,
    "val/math/reward/gain_low": 0.05,
    "val/math/reward/gain_high": 0.15,
    "val/aime/reward/mean": 0.25,
}
GATES = {"math": Gate(True, "gain +0.1000 (95% interval +0.0500 to +0.1500), gainAbove 0")}


@pytest.fixture
def config(make_config: MakeConfig) -> TrainingConfig:
    return make_config(
        model={"path": "Qwen/Qwen2.5-1.5B-Instruct", "fromSeed": None, "revision": "abc"},
        data={"preset": "gsm8k"},
        evaluation=SUITES,
        image="registry.example/trainer@sha256:1",
    )


def read(card: str) -> tuple[dict[str, Any], str]:
    """The metadata as huggingface_hub validates it, and the text."""
    parsed = ModelCard(card)
    return yaml.safe_load(parsed.data.to_yaml()), parsed.text


def test_the_metadata_has_base_model_data_and_results(config: TrainingConfig) -> None:
    data, _ = read(build_card(config, METRICS, GATES))
    assert data["base_model"] == "Qwen/Qwen2.5-1.5B-Instruct"
    assert data["datasets"] == ["openai/gsm8k"]
    assert (data["library_name"], data["pipeline_tag"]) == ("transformers", "text-generation")
    parsed = ModelCard(build_card(config, METRICS, GATES)).data
    assert isinstance(parsed, ModelCardData)
    results = parsed.eval_results
    assert results
    assert all(isinstance(each, EvalResult) for each in results)
    assert [(each.dataset_name, each.dataset_type, each.metric_value) for each in results] == [
        ("math", "openai/gsm8k", 0.625),
        ("aime", "aime.jsonl", 0.25),
    ]


def test_the_text_has_the_numbers_of_the_run(config: TrainingConfig) -> None:
    _, text = read(build_card(config, METRICS, GATES))
    gate = "passed: gain +0.1000 (95% interval +0.0500 to +0.1500), gainAbove 0"
    first = "| math | mean reward, 1 at temperature 0 | 0.6250 | 0.6000 to 0.6500 | +0.1000 (+0.0500 to +0.1500) |"
    assert f"{first} {gate} |" in text
    assert "| aime | mean reward, 4 at temperature 0 | 0.2500 |  |  |  |" in text
    assert "early" not in text, "it has no score after the last step"
    settings = dict(line.strip("| ").split(" | ", 1) for line in text.splitlines() if line.startswith("| "))
    assert settings["base model"] == "Qwen/Qwen2.5-1.5B-Instruct at abc"
    assert settings["steps"] == str(config.training.total_steps)
    assert settings["algorithm"] == config.algorithm.adv_estimator
    assert settings["image"] == "registry.example/trainer@sha256:1"
    assert "rlt-trainer" in settings["software"]


def test_paths_of_the_cluster_are_not_published(make_config: MakeConfig) -> None:
    config = make_config(
        model={"path": "/mnt/models/secret-project/base", "fromSeed": None},
        data={"preset": None, "files": ["/mnt/rlt/secret-project/train|a.jsonl"]},
        evaluation=SUITES[1:2],
    )
    card = build_card(config, METRICS, {})
    data, text = read(card)
    assert "base_model" not in data
    assert "Trained from base with rlt." in text
    assert "| data | train\\|a.jsonl |" in text
    assert "secret-project" not in card


def test_a_run_without_evaluation_has_a_card(make_config: MakeConfig) -> None:
    data, text = read(build_card(make_config(), {}, {}))
    assert "model-index" not in data
    assert "## Evaluation" not in text
    assert "| base model | random weights |" in text
