"""`rlt render --target slurm` on a real Slurm of two nodes, with processes instead of containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hosts import await_true
from slurm import Slurm, start_slurm

pytestmark = pytest.mark.hosts

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL")
TIMEOUT_S = 300
RLT = [sys.executable, "-m", "rlt_cli.main"]
TINY: dict[str, Any] = {
    "model": {"fromSeed": {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2}},
    "data": {"preset": "arithmetic", "maxPromptLength": 8, "maxResponseLength": 5},
    "rewards": [{"name": "exact"}],
    "training": {"totalSteps": 2, "trainBatchSize": 4, "ppoMiniBatchSize": 4},
    "rollout": {"engine": "transformers", "responsesPerPrompt": 2},
}
PROGRAM = """
import os, signal, sys, time
print("the program runs on", os.environ["NAME"], flush=True)
signal.signal(signal.SIGTERM, lambda *_: (print("the program has saved its state", flush=True), sys.exit(0)))
signal.pause()
"""


submitted: list[str] = []
"""The IDs of the jobs. Ray has a folder for each."""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A Slurm of two nodes. Jobs that hang end with it."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = Path(tempfile.mkdtemp(prefix="rlt-slurm-", dir="/tmp"))  # short, for sockets
    with start_slurm(folder, nodes=2, cpus=4) as started:
        yield started
    for path in (folder, *(Path(f"/tmp/ray-{job}") for job in submitted)):
        shutil.rmtree(path, ignore_errors=True)


def submit(slurm: Slurm, name: str, spec: dict[str, Any], *options: str) -> str:
    """Render a job and submit it to Slurm. Returns the job's ID."""
    workers = [{"replicas": 2, "resources": {"cpu": "1", "memory": "1Gi"}}]
    cluster = {"image": "localhost/rlt-trainer:cpu", "workers": workers}
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": name}}
    file = slurm.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**manifest, "spec": {"cluster": cluster, **spec}}))
    rendered = subprocess.run(
        [*RLT, "render", file, "--target", "slurm", "--storage", slurm.folder / "shared"],
        check=True,
        capture_output=True,
        text=True,
    )
    output = f"--output={slurm.folder}/{name}.log"
    done = slurm.run("sbatch", "--parsable", output, *options, input=rendered.stdout, cwd=slurm.folder)
    submitted.append(done.stdout.strip())
    return submitted[-1]


def command(name: str) -> dict[str, Any]:
    return {"framework": {"type": "command", "command": ["env", f"NAME={name}", "python3", "-c", PROGRAM]}}


def read_log(slurm: Slurm, name: str) -> str:
    log = slurm.folder / f"{name}.log"
    return log.read_text() if log.exists() else ""


def await_line(slurm: Slurm, name: str, line: str) -> None:
    try:
        await_true(lambda: line in read_log(slurm, name), f"{line!r} in the log of {name}", TIMEOUT_S)
    except TimeoutError as error:
        raise AssertionError(read_log(slurm, name)) from error


def await_end(slurm: Slurm, job: str) -> str:
    await_true(lambda: slurm.read_state(job) in ENDED, f"end of job {job}", TIMEOUT_S)
    return slurm.read_state(job)


def test_a_job_trains_on_two_nodes(slurm: Slurm) -> None:
    assert await_end(slurm, submit(slurm, "tiny", TINY)) == "COMPLETED", read_log(slurm, "tiny")
    log = read_log(slurm, "tiny")
    assert "rlt: Ray has 2 nodes: node-1 node-2" in log
    assert "step:2 - " in log
    assert list((slurm.folder / "shared/runs").glob("tiny-*/export/config.json"))


def test_jobs_on_the_same_nodes_end_without_leaving_processes(slurm: Slurm) -> None:
    """One is cancelled, one saves its state first, and one loses Ray on a node."""
    jobs = {}
    for name in ("cancelled", "saved", "lost"):
        jobs[name] = submit(slurm, name, command(name))
        # Six nodes of Ray that start at the same time take longer than Ray waits for one.
        await_line(slurm, name, f"the program runs on {name}")
    raylets = slurm.find_processes("node-2").items()
    (lost,) = [pid for pid, line in raylets if "raylet/raylet" in line and f"ray-{jobs['lost']}/" in line]
    os.kill(lost, 9)
    slurm.run("scancel", jobs["cancelled"])
    slurm.run("scancel", "--batch", "--signal=TERM", jobs["saved"])
    states = {name: await_end(slurm, job) for name, job in jobs.items()}
    assert states == {"cancelled": "CANCELLED", "saved": "FAILED", "lost": "FAILED"}
    assert "rlt: Ray ended on node-2 with exit code 1" in read_log(slurm, "lost")
    assert "the program has saved its state" in read_log(slurm, "saved")
    await_true(
        lambda: not any(slurm.find_processes(node) for node in slurm.nodes),
        f"end of all processes: {[slurm.find_processes(node) for node in slurm.nodes]}",
    )
    assert not list((slurm.folder / "shared").glob("configs/*/ray-token-*"))


def test_one_node_for_a_job_of_two_nodes_is_rejected(slurm: Slurm) -> None:
    assert await_end(slurm, submit(slurm, "small", command("small"), "--nodes=1")) == "FAILED"
    assert "rlt: the job needs 2 nodes and has 1 (node-1): run sbatch without --nodes" in read_log(slurm, "small")
