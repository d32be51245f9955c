"""Recorded experts are the same on ranks that share experts and sequences as on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from ranks import join, run_ranks
from replayed_mixtures import MIXTURES, SEQUENCES, build_actor, build_batch, record, write_pair

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.mesh import data_parallel_size

pytestmark = pytest.mark.slow

PACKED = {"use_remove_padding": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "two ranks": {"training": {}},
    "two ranks, packed": {"model": PACKED, "training": {}},
    "two parts": {"training": {"expert_parallel_size": 2}},
    "two parts, packed": {"model": PACKED, "training": {"expert_parallel_size": 2}},
    "context parallel": {"model": PACKED, "training": {"context_parallel_size": 2}},
    "two parts, context parallel": {
        "model": PACKED,
        "training": {"expert_parallel_size": 2, "context_parallel_size": 2},
    },
}
"""Settings of two ranks."""


@dataclass(frozen=True)
class Result:
    own: NDArray[Any]
    """The routes that the routers of a rank's rows choose: [N, L, k]."""
    forced: NDArray[Any]
    """The routes while another model's are forced."""
    log_probs: list[float]
    """With the routes of another model."""
    grad_norm: float


def run(files: str, recorded: Sequences, settings: dict[str, Any], rank: int) -> Result:
    """Record and update on this rank's rows."""
    actor = build_actor(files, "R3", settings)
    training = actor._training
    parts = data_parallel_size(training, dist.get_world_size())
    size = len(SEQUENCES) // parts
    part = rank * parts // dist.get_world_size()
    rows = slice(part * size, (part + 1) * size)
    plain, routed = (each.rows(rows) for each in (SEQUENCES, recorded))
    own = actor.record_log_probs(plain)[2]
    log_probs, _, forced = actor.record_log_probs(routed)
    old = torch.zeros(SEQUENCES.responses.shape)
    old[rows] = log_probs
    result = actor.update(build_batch(recorded, old, rows))
    values = log_probs[plain.response_attention].tolist()
    return Result(plain.flatten_routes(own), plain.flatten_routes(forced), values, result.grad_norm)


def one_rank(files: str, recorded: Sequences, rank: int) -> dict[str, Result]:
    torch.set_num_threads(1)
    join(rank, 2)
    results = {name: run(files, recorded, settings, rank) for name, settings in VARIANTS.items()}
    dist.destroy_process_group()
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, process_group: None) -> tuple[Result, list[dict[str, Result]]]:
    """The results of one rank, and of each of two ranks by variant."""
    files, changed = write_pair(MIXTURES["qwen3_moe"], Path(tmp_path_factory.mktemp("mixture")))
    recorded = record(changed)
    both = run_ranks(one_rank, [(files, recorded, rank) for rank in range(2)])
    return run(files, recorded, {}, 0), both


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_ranks_have_the_routes_and_the_gradient_of_one(
    variant: str, results: tuple[Result, list[dict[str, Result]]]
) -> None:
    alone, both = results
    shares = [each[variant] for each in both]
    is_shared = "context parallel" in variant
    for part, each in enumerate(shares):
        first = 0 if is_shared or part == 0 else len(alone.own) - len(each.own)
        rows = slice(first, first + len(each.own))
        assert (each.own == alone.own[rows]).all()
        assert (each.forced == alone.forced[rows]).all()
        assert not (each.own == each.forced).all()
        assert each.grad_norm == pytest.approx(alone.grad_norm, rel=1e-4)
    values = shares[0].log_probs if is_shared else shares[0].log_probs + shares[1].log_probs
    assert values == pytest.approx(alone.log_probs, abs=1e-5)
