"""Worker pods and worker processes: their Ray resources, and the error when a process dies."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.cluster.actors import results
from rlt_trainer.cluster.pods import count_train_workers, rollout_pods, training_pods
from rlt_trainer.cluster.worker_death import describe_death
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
    with pytest.raises(
        TrainingError, match=rf"of a Mortal \(pid \d+\) in pod {socket.gethostname()} died: .* because of its memory"
    ):
        results([actor.die.remote()])


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_dead_process_is_preferred_to_the_connection_error_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray

    class Rank:
        def die_after(self, calls: list[Any]) -> None:
            ray.wait(calls)
            os._exit(1)

        def lose_connection(self) -> None:
            raise RuntimeError("Connection closed by peer")

    monkeypatch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    ray.init(address="auto")
    dies, survives = (cast(Any, ray.remote(Rank)).remote() for _ in range(2))
    lost = survives.lose_connection.remote()
    with pytest.raises(TrainingError, match=r"of a Rank .* died"):
        results([dies.die_after.remote([lost]), lost])
    with pytest.raises(RuntimeError, match="Connection closed"):
        results([survives.lose_connection.remote()])


DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: TrainWorker
\tactor_id: 1f00
\tpid: 214
\tname: rank
\tnamespace: 7d
\tip: 10.0.3.7
"""


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit "
            "detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes",
            "died: Worker unexpectedly exits with a connection error code 2. End of file. If",
        ),
        (
            "The actor died because its node has died. Node Id: 42\n\tthe actor's node was terminated unexpectedly: x",
            "died: The actor died because its node has died. If",
        ),
    ],
)
def test_the_message_names_process_pod_and_cause(cause: str, message: str) -> None:
    text = describe_death(DIED + cause, {"10.0.3.7": "sum-workers-worker-b"})
    assert text.startswith("The process of a TrainWorker (pid 214) in pod sum-workers-worker-b died: ")
    assert message in text


def test_the_message_without_details_is_a_sentence() -> None:
    text = describe_death("The actor died unexpectedly before finishing this task.", {})
    assert text.startswith("The process of a worker died: The actor died unexpectedly before finishing this task. If")
