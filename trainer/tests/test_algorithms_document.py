"""docs/algorithms.md covers all choices of the API, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rlt_api.blocks.algorithm import Algorithm
from rlt_trainer.algorithms.advantages import ESTIMATORS, AdvantageInputs
from rlt_trainer.algorithms.losses import POLICY_LOSSES, LossInputs

DOCUMENT = (Path(__file__).parents[2] / "docs/algorithms.md").read_text()


@pytest.mark.parametrize("field", ["adv_estimator", "policy_loss", "kl_loss_type", "loss_agg_mode", "convention"])
def test_every_choice_of_the_api_is_documented(field: str) -> None:
    schema: dict[str, Any] = Algorithm.model_json_schema()["properties"]
    name = Algorithm.model_fields[field].alias or field
    choices = schema[name]["enum"]
    assert [choice for choice in choices if f"`{choice}`" not in DOCUMENT] == []


def test_the_trainer_implements_every_choice_of_the_api() -> None:
    schema: dict[str, Any] = Algorithm.model_json_schema()["properties"]
    assert set(schema["advEstimator"]["enum"]) == set(ESTIMATORS)
    assert set(schema["policyLoss"]["enum"]) == set(POLICY_LOSSES)


def test_documented_defaults_of_verl_and_trl_are_valid() -> None:
    blocks = [yaml.safe_load(block)["algorithm"] for block in re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)]
    assert [Algorithm.model_validate(block).convention for block in blocks] == ["verl", "trl"]


def test_documented_user_defined_functions_run() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    mask = torch.tensor([[True, True], [True, False]])
    inputs = AdvantageInputs(torch.tensor([[0.0, 1.0], [2.0, 9.0]]), mask, torch.tensor([0, 0]))
    advantages = namespace["best_of_batch"](inputs).advantages
    assert advantages.tolist() == [[0, 0], [1, 0]]
    log_probs = torch.full((2, 2), -1.0)
    assert namespace["reinforce"](LossInputs(log_probs, log_probs, advantages, mask)).loss.sum() == 1
