"""A run with pods that only generate begins without all of them, continues when one is lost, and gets more of them than
it has at first: in Ray clusters of several nodes on this machine, each in place of a pod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlt_api.spec.training_config import ROLLOUT_RESOURCE, TRAIN_RESOURCE, TrainingConfig
from rlt_trainer.__main__ import TERMINATED

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

MakeConfig = Callable[..., TrainingConfig]

CHANGES: dict[str, Any] = {
    "rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
    "workers": 1,
    "rollout": {"mode": "separate", "workerGroup": "rollout"},
    "minRolloutWorkers": 1,
    "training": {"totalSteps": 100_000},  # the test ends it
}
ROLLOUT_POD: dict[str, Any] = {"num_cpus": 1, "resources": {ROLLOUT_RESOURCE: 1}}
TIMEOUT_S = 300.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The head, and in its place the pod that trains."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "resources": {TRAIN_RESOURCE: 1}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()  # type: ignore[no-untyped-call]


class Run:
    """A driver, and what its run directory shows."""

    def __init__(self, driver: subprocess.Popen[str], folder: Path, log: Path) -> None:
        self._driver = driver
        self._folder = folder
        self._log = log

    def steps(self) -> list[int]:
        """The steps that have finished, in this order."""
        return [line["training/global_step"] for line in self._read("metrics.jsonl")]

    def engines(self, after: int = 0) -> set[int]:
        """The engines that have generated in the steps after this one."""
        spans = [span for span in self._read("spans.jsonl") if span["phase"] == "gen" and span["step"] > after]
        return {span["engine"] for span in spans if span["engine"] is not None}

    def wait_until(self, is_true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_true():
            with suppress(subprocess.TimeoutExpired):
                pytest.fail(f"exit code {self._driver.wait(timeout=0.2)}: {self._log.read_text()}")
            assert time.monotonic() < deadline, f"{what}: {self._log.read_text()}"

    def wait_for_steps(self, count: int) -> None:
        """Wait for further steps."""
        wanted = len(self.steps()) + count
        self.wait_until(lambda: len(self.steps()) >= wanted, f"step {wanted}")

    def _read(self, name: str) -> list[dict[str, Any]]:
        file = self._folder / name
        complete = file.read_text().rpartition("\n")[0] if file.exists() else ""
        return [json.loads(line) for line in complete.splitlines()]


@contextmanager
def start(config: TrainingConfig, address: str, folder: Path) -> Iterator[Run]:
    """Start the driver, and end it as Kubernetes does. Its exit code reports this end."""
    file = folder / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    command = [sys.executable, "-m", "rlt_trainer", "run", "--config", str(file), "--port", "0"]
    log = folder / "log"
    with log.open("w") as output:
        environment = {**os.environ, "RAY_ADDRESS": address}
        driver = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, env=environment)
        try:
            yield Run(driver, Path(config.run_directory), log)
            driver.terminate()
            assert driver.wait(timeout=TIMEOUT_S) == TERMINATED, log.read_text()
        finally:
            driver.kill()
            driver.wait()


@pytest.mark.slow
def test_a_run_begins_without_a_rollout_pod_and_continues_without_another_one(
    cluster: Cluster, make_config: MakeConfig, tmp_path: Path
) -> None:
    first = cluster.add_node(**ROLLOUT_POD)
    with start(make_config(**CHANGES, rolloutWorkers=2), cluster.address, tmp_path) as run:
        run.wait_for_steps(2)
        (early,) = run.engines()

        cluster.add_node(**ROLLOUT_POD)
        run.wait_until(lambda: len(run.engines()) == 2, "the second pod does not generate")

        cluster.remove_node(first, allow_graceful=True)
        run.wait_for_steps(3)
        before = run.steps()[-2]
        assert run.engines(before) == {1 - early}

        cluster.add_node(**ROLLOUT_POD)
        run.wait_until(lambda: run.engines(before) == {0, 1}, "the replaced pod does not generate")
    steps = run.steps()
    assert steps == list(range(1, len(steps) + 1)), "a step was repeated"


@pytest.mark.slow
def test_a_run_gets_more_rollout_pods_than_at_first_and_continues_with_fewer(
    cluster: Cluster, make_config: MakeConfig, tmp_path: Path
) -> None:
    first = cluster.add_node(**ROLLOUT_POD)
    with start(make_config(**CHANGES, rolloutWorkers=1, maxRolloutWorkers=3), cluster.address, tmp_path) as run:
        run.wait_for_steps(2)
        assert len(run.engines()) == 1

        second = cluster.add_node(**ROLLOUT_POD)
        run.wait_until(lambda: len(run.engines()) == 2, "the second pod does not generate")
        cluster.add_node(**ROLLOUT_POD)
        run.wait_until(lambda: len(run.engines()) == 3, "the third pod does not generate")

        for node in (first, second):
            cluster.remove_node(node, allow_graceful=True)
        run.wait_for_steps(3)
        shrunk = run.steps()[-2]
        assert len(run.engines(shrunk)) == 1

        cluster.add_node(**ROLLOUT_POD)
        run.wait_until(lambda: len(run.engines(shrunk)) == 2, "the pod after a smaller number does not generate")
    steps = run.steps()
    assert steps == list(range(1, len(steps) + 1)), "a step was repeated"
