"""`rlt render --target slurm` on a real Slurm of several nodes: with processes, and in isolation as by Apptainer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlt_e2e.hosts import await_true
from rlt_e2e.slurm import Slurm, find_program, start_slurm

pytestmark = pytest.mark.hosts

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL")
TIMEOUT_S = 300
RLT = [sys.executable, "-m", "rlt_cli.main"]
BANDIT: dict[str, Any] = {
    "model": {"fromSeed": {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2}},
    "data": {"preset": "bandit", "maxPromptLength": 8, "maxResponseLength": 1},
    "algorithm": {"klLossCoef": 0},
    "training": {"totalSteps": 25, "trainBatchSize": 8, "ppoMiniBatchSize": 8, "learningRate": 1e-2},
    "rollout": {"engine": "transformers", "responsesPerPrompt": 32},
}
"""In each of four states, one token of 262 has a reward."""
APPTAINER = """#!/bin/bash
# `apptainer exec [--bind=FOLDER]... IMAGE COMMAND...` with the files of the machine as the image: as with Apptainer,
# only /tmp, /dev, /proc and the given folders can be written.
set -eu
[ "$1" = exec ]; shift
options=(--ro-bind / / --dev-bind /dev /dev --dev-bind /proc /proc --bind /tmp /tmp)
while [[ $1 == --bind=* ]]; do options+=(--bind "${1#--bind=}" "${1#--bind=}"); shift; done
[ -s "$1" ]; shift
echo "$SLURMD_NODENAME" >> "$ISOLATED"
exec BUBBLEWRAP "${options[@]}" -- "$@"
"""
FAILING = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["RLT_ATTEMPT_DIRECTORY"])
print("attempt", folder.name, flush=True)
if folder.name == "1":
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    sys.exit(7)
"""
SILENT = "import signal; signal.pause()"
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
    """A Slurm of three nodes, of which a job takes the first two. Jobs that hang end with it."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = Path(tempfile.mkdtemp(prefix="rlt-slurm-", dir="/tmp"))  # short, for sockets
    with start_slurm(folder, nodes=3, cpus=4) as started:
        yield started
    for path in (folder, *(Path(f"/tmp/ray-{job}") for job in submitted)):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def storage() -> Iterator[Path]:
    """A folder that isolated processes cannot write unless it is given to them."""
    folder = Path(tempfile.mkdtemp(prefix="rlt-slurm-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


def submit(
    slurm: Slurm,
    name: str,
    spec: dict[str, Any],
    *options: str,
    storage: Path | None = None,
    render: Sequence[str] = (),
) -> str:
    """Render a job with options of `rlt render`, and submit it to Slurm. Returns the job's ID."""
    workers = [{"replicas": 2, "resources": {"cpu": "1", "memory": "1Gi"}}]
    cluster = {"image": "localhost/rlt-trainer:cpu", "workers": workers}
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": name}}
    file = slurm.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**manifest, "spec": {"cluster": cluster, **spec}}))
    rendered = subprocess.run(
        [*RLT, "render", file, "--target", "slurm", "--storage", storage or slurm.folder / "shared", *render],
        check=True,
        capture_output=True,
        text=True,
    )
    output = f"--output={slurm.folder}/{name}.log"
    done = slurm.run("sbatch", "--parsable", output, *options, input=rendered.stdout, cwd=slurm.folder)
    submitted.append(done.stdout.strip())
    return submitted[-1]


def python(program: str) -> dict[str, Any]:
    return {"framework": {"type": "command", "command": ["python3", "-c", program]}}


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


def await_starts(slurm: Slurm, name: str, count: int) -> None:
    """Wait until the program of `command` has started this number of times."""
    line = f"the program runs on {name}"
    try:
        await_true(lambda: read_log(slurm, name).count(line) == count, f"start {count} of {name}", TIMEOUT_S)
    except TimeoutError as error:
        raise AssertionError(read_log(slurm, name)) from error


def await_end(slurm: Slurm, job: str) -> str:
    await_true(lambda: slurm.read_state(job) in ENDED, f"end of job {job}", TIMEOUT_S)
    return slurm.read_state(job)


def test_a_job_learns_on_two_nodes_in_isolation(slurm: Slurm, storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = slurm.folder / "bin/apptainer"
    log = slurm.folder / "isolated"
    program.parent.mkdir()
    program.write_text(APPTAINER.replace("BUBBLEWRAP", find_program("bwrap")))
    program.chmod(0o755)
    (slurm.folder / "image.sif").write_text("the files of the machine")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("ISOLATED", str(log))
    render = ("--container-runtime", "apptainer", "--image-file", str(slurm.folder / "image.sif"))
    job = submit(slurm, "bandit", BANDIT, storage=storage, render=render)
    assert await_end(slurm, job) == "COMPLETED", read_log(slurm, "bandit")
    assert "rlt: Ray has 2 nodes: node-1 node-2" in read_log(slurm, "bandit")
    assert {"node-1", "node-2"} <= set(log.read_text().split())
    (run,) = (storage / "runs").glob("bandit-*")
    rewards = [json.loads(line)["critic/rewards/mean"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert (len(rewards), rewards[0] < 0.05, rewards[-1] > 0.5) == (25, True, True), rewards
    assert (run / "export/config.json").exists()


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


def test_a_job_checks_its_nodes_starts_again_and_keeps_its_logs(slurm: Slurm) -> None:
    job = submit(
        slurm, "again", {**python(FAILING), "preflight": {"level": "basic"}, "failurePolicy": {"maxRestarts": 1}}
    )
    assert await_end(slurm, job) == "COMPLETED", read_log(slurm, "again")
    log = read_log(slurm, "again")
    (run,) = (slurm.folder / "shared/runs").glob("again-*")
    checks = {each["name"]: each["result"] for each in json.loads((run / "preflight.json").read_text())}
    assert (checks["ranks"], checks["connections"], checks["ray-nodes"]) == ("passed", "passed", "passed"), checks
    assert "failed" not in checks.values(), log
    assert "CHECK" in log
    assert "✓ ranks" in log
    assert "rlt: error GpuOutOfMemory" in log
    assert "attempt 2 of 2 starts in 10 s" in log
    assert (run / "attempts/2/program.log").read_text() == "attempt 2\n"
    assert {folder.name for folder in (run / "attempts/2/ray").iterdir()} == {"node-1", "node-2"}


def test_a_failed_check_ends_the_job_before_its_program(slurm: Slurm) -> None:
    files = {"data.train_files": slurm.folder / "no-such.parquet"}
    arguments = [f"{key}={value}" for key, value in files.items()]
    framework = {"type": "command", "command": ["python3", "-m", "verl.trainer.main_ppo", *arguments]}
    job = submit(slurm, "unready", {"framework": framework, "preflight": {"level": "basic"}})
    assert await_end(slurm, job) == "FAILED"
    log = read_log(slurm, "unready")
    assert "✗ " in log
    assert "no-such.parquet" in log
    assert "verl.trainer.main_ppo" not in log.partition("CHECK")[2]


def test_a_silent_program_ends_with_its_stacks(slurm: Slurm) -> None:
    job = submit(slurm, "silent", {**python(SILENT), "failurePolicy": {"progressDeadlineSeconds": 5}})
    assert await_end(slurm, job) == "FAILED", read_log(slurm, "silent")
    assert "rlt: no progress for 5 s" in read_log(slurm, "silent")
    (run,) = (slurm.folder / "shared/runs").glob("silent-*")
    assert list((run / "attempts/1/stacks").iterdir())


def test_slurm_starts_a_job_again_after_the_failure_of_a_node(slurm: Slurm) -> None:
    job = submit(slurm, "requeued", {**command("requeued"), "failurePolicy": {"maxRestarts": 1}})
    await_line(slurm, "requeued", "the program runs on requeued")
    raylets = slurm.find_processes("node-2").items()
    (lost,) = [pid for pid, line in raylets if "raylet/raylet" in line and f"ray-{job}/" in line]
    os.kill(lost, 9)
    await_line(slurm, "requeued", "the job starts again")
    await_starts(slurm, "requeued", 2)
    slurm.run("scancel", job)
    assert await_end(slurm, job) == "CANCELLED"


def test_a_lost_node_is_a_disruption_and_is_excluded(slurm: Slurm) -> None:
    """It is the last test: the node does not return."""
    policy = {"maxRestarts": 9, "maxDisruptions": 1, "excludeFaultyNodes": True}  # Ray may end in a slow start
    job = submit(slurm, "lost-node", {**command("lost-node"), "failurePolicy": policy})
    await_starts(slurm, "lost-node", 1)
    for pid in slurm.nodes["node-2"].find_processes():
        os.kill(pid, 9)
    await_starts(slurm, "lost-node", 2)
    log = read_log(slurm, "lost-node")
    assert "rlt: the job has lost node-2: the job starts again" in log
    assert "rlt: Ray has 2 nodes: node-1 node-3" in log
    assert "ExcNodeList=node-2 " in slurm.run("scontrol", "--oneliner", "show", "job", job).stdout
    slurm.run("scontrol", "requeue", job)
    assert await_end(slurm, job) == "FAILED"
    assert "rlt: disruption 2 exceeds spec.failurePolicy.maxDisruptions: 1" in read_log(slurm, "lost-node")
