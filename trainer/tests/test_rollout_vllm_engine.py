"""vLLM and the policy: what a weight sync brings, and that one which brings nothing is found out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlt_api.training_config import TrainingConfig
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rank import Rank
from rlt_trainer.rollout.verification import StaleWeightsError
from rlt_trainer.sequences import Sequences

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)


@pytest.fixture(scope="module")
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rank]:
    """A rank alone, with a policy and a vLLM engine that have not met yet."""
    tiny = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}
    config = TrainingConfig.model_validate(
        {
            "job": "tiny",
            "namespace": "default",
            "runDirectory": str(tmp_path_factory.mktemp("run")),
            "workers": 1,
            "devicesPerWorker": 0,
            "cpusPerWorker": 2,
            "model": {"fromSeed": tiny},
            "data": {"preset": "arithmetic", "maxPromptLength": 16, "maxResponseLength": 5},
            "rewards": [{"name": "exact"}],
            "algorithm": {"klLossCoef": 0},
            "training": {"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-3},
            "rollout": {"engine": "vllm"},
            "checkpoint": {},
        }
    )
    rank = Rank(config, 0, 1, node_address="127.0.0.1")
    rank.connect(rank.rendezvous())
    rank.load_policy()
    rank.start_engine(PROBES)
    yield rank
    rank.close()


@pytest.mark.slow
def test_an_engine_that_was_never_given_the_weights_is_stale(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank._engine, "update_weights", list)  # consumes the weights and does nothing
    with pytest.raises(StaleWeightsError, match="Stale weights"):
        rank.sync_weights()


@pytest.mark.slow
def test_log_probs_agree_after_a_sync(rank: Rank) -> None:
    assert rank.sync_weights() < 1e-4


@pytest.mark.slow
def test_they_agree_again_after_an_optimizer_step_and_not_without_a_sync(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank.sync_weights()
    rank.supervised_step(EXAMPLES, 12)
    with monkeypatch.context() as patch:
        patch.setattr(rank._engine, "update_weights", list)
        with pytest.raises(StaleWeightsError):
            rank.sync_weights()
    assert rank.sync_weights() < 1e-4


@pytest.mark.slow
def test_responses_repeat_by_seed_and_carry_the_policys_log_probs(rank: Rank) -> None:
    rank.sync_weights()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    responses = rank.generate(prompts, [1, 2, 3, 4])
    assert rank.generate(prompts[::-1], [4, 3, 2, 1])[::-1] == responses
    sequences = Sequences.pad(prompts, [response.token_ids for response in responses], pad_token_id=0)
    log_probs, _ = rank.log_probs(sequences)
    for row, response in zip(log_probs.tolist(), responses, strict=True):
        assert row[: len(response.log_probs)] == pytest.approx(response.log_probs, abs=1e-4)
