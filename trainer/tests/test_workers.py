"""Worker pods and worker processes: their Ray resources, and the error when a process dies."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.pods import count_train_workers, rollout_pods, training_pods
from rlt_trainer.cluster.worker_group import results
from rlt_trainer.driver.engines import split_evenly
from rlt_trainer.errors import TrainingError

MakeConfig = Callable[..., TrainingConfig]


def test_colocated_pods_request_cpus_and_gpus(make_config: MakeConfig) -> None:
    pods = training_pods(make_config(workers=2, devicesPerWorker=4, cpusPerWorker=8))
    assert pods.bundle() == {"CPU": 8, "GPU": 4}
    assert (pods.processes, pods.threads) == (4, 2)


def test_separate_pods_request_the_resource_of_their_group(make_config: MakeConfig) -> None:
    config = make_config(workers=2, cpusPerWorker=3, rolloutWorkers=1, rolloutCpusPerWorker=2)
    assert training_pods(config).bundle() == {"CPU": 3, "rlt-train": 1}
    assert rollout_pods(config).bundle() == {"CPU": 2, "rlt-rollout": 1}
    assert count_train_workers(config) == 2


@pytest.mark.parametrize(("rows", "chunks", "sizes"), [(8, 2, [4, 4]), (7, 3, [2, 2, 3]), (1, 3, [0, 0, 1])])
def test_chunks_differ_by_at_most_one_row(rows: int, chunks: int, sizes: list[int]) -> None:
    split = [list(range(rows))[chunk] for chunk in split_evenly(rows, chunks)]
    assert [len(chunk) for chunk in split] == sizes
    assert [row for chunk in split for row in chunk] == list(range(rows))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_the_death_of_a_process_is_reported_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    class Mortal:
        def die(self) -> None:
            os._exit(1)

    monkeypatch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    ray.init(address="auto")
    actor: Any = ray.remote(Mortal).remote()
    with pytest.raises(TrainingError, match=r"A worker process died .* OOMKilled"):
        results([actor.die.remote()])
