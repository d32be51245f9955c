"""The imports that Ray's processes make before they are actors, and the processes that it starts with a pod."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from rlt_api.frameworks.builtin.prestart import MODULE, list_worker_variables
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import TrainingConfig
from rlt_pod.prestart import start_processes
from rlt_pod.report.driver_report import NO_PRELOAD
from rlt_trainer.cluster.pods import training_pods
from rlt_trainer.cluster.successor import start_successor
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.driver.engine_processes import ColocatedProcesses
from rlt_trainer.preload import MODULES
from rlt_trainer.workers.rollout_worker import RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

MakeConfig = Callable[..., TrainingConfig]

IDLE = "IDLE"
"""Ray's title of a process without a task."""
WITHOUT_DEVICES = """
import torch
import torch.cuda

def fail(*arguments):
    raise AssertionError("devices are counted at an import")

torch.cuda.is_available = torch.cuda.device_count = torch.cuda._lazy_init = fail
"""
LIST_MODULES = """
import sys
print(*sorted(name for name in sys.modules if name.startswith("rlt_trainer.")))
"""
SELECT_NO_DEVICE = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
assert torch.version.cuda and not torch.cuda.is_available()
"""


def run_python(program: str, **environment: str) -> list[str]:
    """Run the program in a new process. Return the words of its output."""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_imports_do_not_count_devices() -> None:
    assert set(MODULES) <= set(run_python(f"{WITHOUT_DEVICES}import {MODULE}{LIST_MODULES}"))


@pytest.mark.gpu
def test_devices_are_selected_after_the_imports() -> None:
    run_python(f"import {MODULE}{SELECT_NO_DEVICE}")


def test_a_process_without_the_trainer_imports_none_of_it() -> None:
    imported = run_python(f"import {MODULE}{LIST_MODULES}", **{NO_PRELOAD: "1"})
    assert not set(MODULES) & set(imported)


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Iterator[psutil.Process]:
    """The raylet of a pod with more CPUs than actors, in a Ray cluster whose head has no CPUs."""
    import ray
    from ray.cluster_utils import Cluster

    resources = {"cpu": "4", "memory": "4Gi"}
    in_place = {"failurePolicy": {"restartPolicy": "InPlace"}, "storage": {"claimName": "runs"}}
    cluster_spec = {"image": "i", "workers": [{"resources": resources}]}
    spec = RLTrainingJobSpec.model_validate({"cluster": cluster_spec, **in_place})
    variables = list_worker_variables(spec, spec.cluster.workers[0])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    node = cluster.add_node(num_cpus=4, env_vars=variables)
    monkeypatch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    ray.init(address=cluster.address, log_to_driver=False)
    (raylet,) = node.all_processes["raylet"]
    yield psutil.Process(raylet.process.pid)
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_actors_get_the_processes_of_their_pod(pod: psutil.Process, make_config: MakeConfig) -> None:
    started = {process.pid for process in pod.children() if find_title(process) == IDLE}
    assert len(started) == 2, "one for a train worker, one for its engine"
    config = make_config(workers=1, cpusPerWorker=4)
    group = WorkerGroup(TrainWorker, config, training_pods(config))
    engine = ColocatedProcesses(config, group).start(0)
    asyncio.run(engine.call(RolloutWorker.start))
    group.all(TrainWorker.node_address)
    titles = {process.pid: find_title(process) for process in pod.children()}
    assert {titles[pid] for pid in started} == {"TrainWorker", "RolloutWorker"}
    assert IDLE not in titles.values()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["the check", "actors"])
def test_a_second_program_gets_processes_that_were_started_before_it(pod: psutil.Process, by: str) -> None:
    import ray

    def list_ready() -> set[int]:
        """The processes that have made their imports and have no actor."""
        ready = set()
        for process in pod.children():
            with suppress(psutil.NoSuchProcess):  # it ends with the first program
                if " ".join(process.cmdline()).startswith("ray::IDLE"):
                    ready.add(process.pid)
        return ready

    class Actor:
        def get_pid(self) -> int:
            return os.getpid()

        def end_step(self) -> None:
            start_successor()

    remote: Any = ray.remote(num_cpus=1)(Actor)
    first = [remote.remote() for _ in range(2)]
    ray.get([actor.get_pid.remote() for actor in first])
    before = list_ready()
    if by == "actors":
        for _ in range(2):
            ray.get([actor.end_step.remote() for actor in first])
    else:
        (node,) = [each for each in ray.nodes() if each["Resources"].get("CPU")]  # type: ignore[no-untyped-call] # of Ray
        start_processes([node], {node["NodeID"]: 2})
    address = ray.get_runtime_context().gcs_address
    ray.shutdown()
    deadline = time.monotonic() + 60
    while len(list_ready() - before) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    ready = list_ready()
    assert len(ready - before) == 2, "one for each actor"
    ray.init(address=address, log_to_driver=False)
    second = [remote.remote() for _ in range(2)]
    assert set(ray.get([actor.get_pid.remote() for actor in second])) <= ready


def find_title(process: psutil.Process) -> str:
    """Return the class of the actor that a process of Ray runs; IDLE without one, also before its imports."""
    command = " ".join(process.cmdline())
    if "default_worker.py" in command:
        return IDLE
    title = re.match(r"ray::(\w+)", command)
    return title[1] if title else command
