"""A user-defined estimator and loss by import path."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rlt_api.blocks.functions import PythonFunction
from rlt_trainer.algorithms import user_functions
from rlt_trainer.algorithms.advantages import AdvantageInputs
from rlt_trainer.algorithms.losses import LossInputs
from rlt_trainer.algorithms.user_functions import load_function, load_user_function

SOURCE = '''
from rlt_trainer.algorithms.advantages import AdvantageInputs, Advantages
from rlt_trainer.algorithms.losses import LossInputs, TokenLoss

VERSION = 3


def best_of_batch(inputs: AdvantageInputs) -> Advantages:
    """Learn only from the best response of the batch."""
    scores = inputs.token_rewards.sum(-1)
    advantages = (scores == scores.max())[:, None] * inputs.mask.to(scores.dtype)
    return Advantages(advantages, advantages)


def reinforce(inputs: LossInputs) -> TokenLoss:
    """The plain policy gradient."""
    loss = inputs.weighted(-inputs.advantages * inputs.log_probs)
    return TokenLoss(loss, {"actor/surprise": -inputs.log_probs.detach()})
'''


FIELD = "algorithm.policyLossFunction"


@pytest.fixture(autouse=True)
def _user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user-defined module in a ConfigMap."""
    folder = tmp_path / "my-functions"
    folder.mkdir()
    (folder / "my_algorithms.py").write_text(SOURCE)
    (folder / "json.py").write_text(SOURCE)
    monkeypatch.setattr(user_functions, "FUNCTIONS_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_algorithms", raising=False)


def load(name: str) -> Any:
    return load_user_function(PythonFunction(name=name, config_map="my-functions"), field=FIELD)


def test_a_user_defined_estimator_runs() -> None:
    mask = torch.tensor([[True, True], [True, False]])
    inputs = AdvantageInputs(torch.tensor([[0.0, 1.0], [2.0, 9.0]]), mask, torch.tensor([0, 0]))
    assert load("my_algorithms:best_of_batch")(inputs).advantages.tolist() == [[0, 0], [1, 0]]


def test_a_user_defined_loss_runs() -> None:
    log_probs = torch.tensor([[-1.0, float("nan")]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    result = load("my_algorithms:reinforce")(LossInputs(log_probs, log_probs.detach(), torch.ones(1, 2), mask))
    result.loss.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [[-1, 0]]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("my_algorithms:reenforce", "Functions in .*: .*best_of_batch, reinforce"),
        ("my_algorithms:VERSION", "is a value of type int. Name a function"),
        ("json:reinforce", "has the same module name. Rename the module"),
    ],
)
def test_a_load_error_names_field_and_path(path: str, found: str) -> None:
    with pytest.raises(ValueError, match=rf'^{FIELD}: .*"{path}".*{found}'):
        load(path)


def test_without_a_config_map_the_module_is_in_the_image() -> None:
    assert load_user_function(PythonFunction(name="math:hypot"), field=FIELD) is math.hypot
    with pytest.raises(ValueError, match=r"not an import path\. Use the form module:function"):
        load_function("math.hypot", field=FIELD)
