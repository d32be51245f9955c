"""vLLM with rollout.staleness.kvCache keep: weight syncs while responses are in progress."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from in_process import Pair, build_vllm_config

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.telemetry.engine_counters import (
    HITS,
    PREEMPTIONS,
    QUERIES,
    EngineCounters,
    compute_counter_metrics,
)

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)
PROMPT = list(range(50, 98))
"""More than a block of the cache."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A policy and a vLLM engine, after the first weight sync."""
    config = build_vllm_config(
        tmp_path_factory.mktemp("run"), engineKwargs={"block_size": 32}, staleness={"kvCache": "keep"}
    )
    pair = Pair(config, PROBES)
    pair.sync()
    yield pair
    pair.close()


@pytest.mark.slow
def test_responses_in_progress_continue_with_their_cache(pair: Pair) -> None:
    long = replace(pair.engines.sampling, max_tokens=60, stop_token_ids=())
    prompts = [list(prompt.token_ids) for prompt in PROBES] * 8
    counters = EngineCounters()
    pair.take(counters)
    running = pair.start(prompts, list(range(32)), long)  # 8 run at the same time
    pair.rank.supervised_step(EXAMPLES, 12)
    assert pair.sync() < 1e-4
    responses = running.result(120)
    assert {each.finish_reason for each in responses} <= {"stop", "length"}
    is_new = [
        (torch.tensor(each.log_probs) - row).abs() < 1e-4
        for each, row in zip(responses, pair.policy_log_probs(prompts, responses), strict=True)
    ]
    assert any(row.all() for row in is_new), "responses that started after the sync"
    assert any(not row.all() for row in is_new), "responses that started before"
    assert pair.take(counters)[PREEMPTIONS] == 0


@pytest.mark.slow
def test_later_requests_find_no_values_of_earlier_weights(pair: Pair) -> None:
    counters = EngineCounters()
    for _ in range(2):
        pair.rank.supervised_step(EXAMPLES, 12)
        assert pair.sync() < 1e-4
        pair.take(counters)
        (first,) = pair.generate([PROMPT], [1])
        assert pair.take(counters)[HITS] == 0
        (again,) = pair.generate([PROMPT], [2])
        added = pair.take(counters)
        assert added[HITS] == 32, "the block of this version"
        assert compute_counter_metrics([added]) == {
            "rollout/prefix_cache_hit_rate": 32 / added[QUERIES],
            "rollout/preemptions": 0,
        }
        for response, row in zip([first, again], pair.policy_log_probs([PROMPT] * 2, [first, again]), strict=True):
            assert row.tolist() == pytest.approx(list(response.log_probs), abs=1e-4)
