"""A rollout engine with other weights than the policy's is found out."""

from __future__ import annotations

import pytest
import torch

from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.model import load_model
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.transformers_sampler import TransformersSampler
from rlt_trainer.rollout.verification import StaleWeightsError, as_response, verify_weights

PROBE = [[50, 51, 52], [60, 61]]


def engine(files: str) -> TransformersSampler:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=2, stop_token_ids=())
    return TransformersSampler(files, dtype=torch.float32, device=torch.device("cpu"), sampling=sampling)


def test_equal_weights_pass(tiny_model: str) -> None:
    with torch.no_grad():
        expected, _ = response_log_probs(load_model(tiny_model, torch.float32), as_response(PROBE), temperature=1.0)
    assert verify_weights(engine(tiny_model), PROBE, expected, "float32") < 1e-5


@pytest.mark.parametrize("change", [1e-3, float("nan")])
def test_other_weights_do_not(tiny_model: str, change: float) -> None:
    with torch.no_grad():
        expected, _ = response_log_probs(load_model(tiny_model, torch.float32), as_response(PROBE), temperature=1.0)
    with pytest.raises(StaleWeightsError, match="Stale weights in the rollout engine"):
        verify_weights(engine(tiny_model), PROBE, expected + change, "float32")
