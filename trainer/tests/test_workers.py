"""The processes in the worker pods: what they ask of Ray, and what is said when one is gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from rlt_api.training_config import TrainingConfig
from rlt_trainer.driver.engines import pieces
from rlt_trainer.driver.worker_group import results, rollout_pods, training_pods, world_size
from rlt_trainer.errors import TrainingError

MakeConfig = Callable[..., TrainingConfig]


def test_colocated_pods_ask_for_what_any_worker_has(make_config: MakeConfig) -> None:
    pods = training_pods(make_config(workers=2, devicesPerWorker=4, cpusPerWorker=8))
    assert pods.bundle() == {"CPU": 8, "GPU": 4}
    assert (pods.processes, pods.threads) == (4, 2)


def test_separate_pods_ask_for_the_resource_of_their_group(make_config: MakeConfig) -> None:
    config = make_config(workers=2, cpusPerWorker=3, rolloutWorkers=1, rolloutCpusPerWorker=2)
    assert training_pods(config).bundle() == {"CPU": 3, "rlt-train": 1}
    assert rollout_pods(config).bundle() == {"CPU": 2, "rlt-rollout": 1}
    assert world_size(config) == 2


@pytest.mark.parametrize(("rows", "parts", "sizes"), [(8, 2, [4, 4]), (7, 3, [2, 2, 3]), (1, 3, [0, 0, 1])])
def test_pieces_differ_by_one_row_at_most(rows: int, parts: int, sizes: list[int]) -> None:
    cut = [list(range(rows))[piece] for piece in pieces(rows, parts)]
    assert [len(piece) for piece in cut] == sizes
    assert [row for piece in cut for row in piece] == list(range(rows))


@pytest.mark.slow
def test_a_process_that_is_gone_is_told_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    class Mortal:
        def die(self) -> None:
            os._exit(1)

    monkeypatch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    ray.init(address="local", num_cpus=1, include_dashboard=False)
    try:
        actor: Any = ray.remote(Mortal).remote()
        with pytest.raises(TrainingError, match=r"A process in a worker pod is gone .* OOMKilled"):
            results([actor.die.remote()])
    finally:
        ray.shutdown()
