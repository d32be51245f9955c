"""vLLM with rollout.speculativeConfig: the distribution of responses, their ends and the counters of drafts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from in_process import Pair, build_vllm_config

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.telemetry.engine_counters import (
    ACCEPTED,
    DRAFT_TOKENS,
    DRAFTS,
    EngineCounters,
    compute_counter_metrics,
)

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
PROMPT = [50, 51, 52, 53] * 3
EXAMPLES = Sequences.pad([PROMPT] * 4, [[54, 55, 54, 55, 56, 54, 55, 56]] * 4, pad_token_id=0)
"""Responses that repeat themselves: after STEPS on them, the policy accepts a tenth of the proposed tokens."""
STEPS = 45
COUNT = 96
LENGTH = 24
ENDS = (56, 257)
"""A token of the examples, and the tokenizer's end of text, which always ends a response of vLLM."""


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A policy and a vLLM engine, after a weight sync."""
    config = build_vllm_config(
        tmp_path_factory.mktemp("run"),
        max_response_length=LENGTH,
        speculativeConfig={"numSpeculativeTokens": 3, "promptLookupMax": 3, "promptLookupMin": 1},
    )
    if request.param == "cuda":
        from vllm.platforms import current_platform

        if not current_platform.is_cuda():
            pytest.skip("needs vLLM built for CUDA")
        config = config.model_copy(update={"devices_per_worker": 1})
    pair = Pair(config, PROBES)
    for _ in range(STEPS):
        pair.rank.supervised_step(EXAMPLES, 32)
    pair.sync()
    yield pair
    pair.close()


def policy_values(pair: Pair, responses: list[Response]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies under the policy, of all tokens one after the other."""
    sequences = Sequences.pad([PROMPT] * len(responses), [each.token_ids for each in responses], pad_token_id=0)
    log_probs, entropies = pair.rank.log_probs(sequences)
    return torch.from_numpy(log_probs).double(), torch.from_numpy(entropies).double()


@pytest.mark.slow
def test_responses_have_the_distribution_of_the_policy(pair: Pair) -> None:
    """The surprise of a token minus the entropy of its distribution has the mean 0, given the tokens before it."""
    counters = EngineCounters()
    pair.take(counters)
    sampling = replace(pair.engines.sampling, stop_token_ids=())
    responses = pair.generate([PROMPT] * COUNT, list(range(COUNT)), sampling)
    added = pair.take(counters)
    log_probs, entropies = policy_values(pair, responses)
    recorded = torch.cat([torch.tensor(each.log_probs, dtype=torch.double) for each in responses])
    tolerance = 0.02 if torch.cuda.is_available() else 1e-4  # TF32 and other kernels than the trainer's
    assert float((recorded - log_probs).abs().max()) < tolerance
    excess = -log_probs - entropies
    assert abs(float(excess.sum() / excess.square().sum().sqrt())) < 4, "standard deviations"
    assert 0.03 * added[DRAFT_TOKENS] < added[ACCEPTED] < added[DRAFT_TOKENS]
    metrics = compute_counter_metrics([added])
    assert metrics["rollout/spec_accept_rate"] == added[ACCEPTED] / added[DRAFT_TOKENS]
    assert metrics["rollout/spec_accept_length"] == 1 + added[ACCEPTED] / added[DRAFTS]


@pytest.mark.slow
def test_responses_depend_on_their_seeds_alone(pair: Pair) -> None:
    sampling = replace(pair.engines.sampling, stop_token_ids=())
    responses = pair.generate([PROMPT] * 8, list(range(8)), sampling)
    again = pair.generate([PROMPT] * 8, list(range(8))[::-1], sampling)[::-1]
    assert [each.token_ids for each in again] == [each.token_ids for each in responses]


@pytest.mark.slow
def test_no_accepted_token_follows_the_end_of_a_response(pair: Pair) -> None:
    sampling = replace(pair.engines.sampling, stop_token_ids=ENDS)
    responses = pair.generate([PROMPT] * 32, list(range(32)), sampling)
    assert "stop" in {each.finish_reason for each in responses}
    for each in responses:
        tokens = list(each.token_ids)
        assert len(tokens) == len(each.log_probs) <= LENGTH
        assert not {*ENDS} & {*tokens[:-1]}
        assert (tokens[-1] in ENDS) == (each.finish_reason == "stop")
