"""A command that blocks after two steps: the operator keeps the stacks of its processes, on a real Ray head."""

from __future__ import annotations

import sys
from pathlib import Path

import observed as o
import pytest
from apiserver.in_cluster import Kubernetes, Operator, RayHead, eventually
from apiserver.test_ray_jobs import make_ready, ray, start_job

__all__ = ["ray"]

pytestmark = pytest.mark.apiserver

SCRIPT = """
import pathlib, ray, threading
mark = pathlib.Path({mark!r})
ray.init(address="auto")

@ray.remote(num_cpus=1)
class TrainWorker:
    def update(self):
        wait_for_the_other_rank()

def wait_for_the_other_rank():
    threading.Event().wait()

if mark.exists():
    print("step:3 - critic/rewards/mean:0.5", flush=True)
    raise SystemExit
mark.touch()
for step in (1, 2):
    print(f"step:{{step}} - critic/rewards/mean:0.5 - timing_s/step:0.1", flush=True)
ray.get(TrainWorker.remote().update.remote())
"""
"""Its first run blocks in a worker, its second one succeeds."""


def test_a_program_without_progress_leaves_its_stacks_and_is_restarted(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, tmp_path: Path
) -> None:
    """The operator crashes after its decision."""
    spec = {
        **o.COMMAND_SPEC,
        "framework": {"type": "command", "command": [sys.executable, "-c", SCRIPT.format(mark=str(tmp_path / "mark"))]},
        "storage": {"claimName": "runs", "mountPath": str(tmp_path)},
        "cluster": {**o.COMMAND_SPEC["cluster"], "terminationGracePeriodSeconds": 10},
        "failurePolicy": {"maxRestarts": 1, "progressDeadlineSeconds": 10},
    }
    start_job(kubernetes, namespace, ray, spec)
    kubernetes.wait(namespace, "Running", "NoProgress")
    operator.kill()
    operator.start()
    kubernetes.wait(namespace, "Running", "Restarting")
    (attempt,) = kubernetes.status(namespace)["attempts"]
    assert (attempt["number"], attempt["reason"], attempt["step"]) == (1, "NoProgress", 2)
    assert "3 stacks of 1 pod: " in attempt["message"]  # wrapper, driver, worker
    (stacks,) = tmp_path.glob("runs/sum-*/attempts/1/stacks")
    assert f": {stacks}." in attempt["message"]
    texts = [file.read_text() for file in stacks.iterdir()]
    assert [text.splitlines()[0] for text in texts if "wait_for_the_other_rank" in text] == ["ray::TrainWorker.update"]
    assert kubernetes.events(namespace).count("NoProgress") == 1
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    kubernetes.end_pods(namespace)
    kubernetes.ray_cluster(namespace)
    make_ready(kubernetes, namespace, ray)
    kubernetes.wait(namespace, "Succeeded")
    assert kubernetes.status(namespace)["restarts"] == 1
