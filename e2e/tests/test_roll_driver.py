"""run_roll.py on a Ray cluster whose head has no devices: its program runs on the other node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlt_api
from rlt_pod.command import run_roll
from separate_environment import install

pytestmark = pytest.mark.slow

REPORT = """
import json, os, sys
names = ("RAY_ADDRESS", "RLT_ROLL_CHECKPOINT", "CUDA_VISIBLE_DEVICES")
print(json.dumps({"arguments": sys.argv[1:], **{name: os.environ.get(name) for name in names}}))
sys.exit(3)
"""
WAIT = """
import os, signal, sys
def stop(number, frame):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
fifo = os.open(sys.argv[1], os.O_WRONLY)
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a Ray cluster with a head without devices and a node with two. Its workers have Hydra."""
    from ray.cluster_utils import Cluster

    packages = next((install("verl-config", "--no-deps").parents[1] / "lib").glob("python*/site-packages"))
    head = {"num_cpus": 1, "num_gpus": 0, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{packages}")
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.add_node(num_cpus=1, num_gpus=2)
    yield cluster.address
    cluster.shutdown()  # type: ignore[no-untyped-call] # of Ray


def start(address: str, folder: Path, script: str, *options: str, config: str = "{}") -> subprocess.Popen[str]:
    """Start run_roll.py with a script and a config in a folder of ROLL's layout. The file `errors` has its errors."""
    for name, text in {"examples/start.py": script, "etc/roll.yaml": config}.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    program = [sys.executable, run_roll.__file__, "--config", str(folder / "etc/roll.yaml"), *options[:-1], "--"]
    command = [*program, sys.executable, "examples/start.py", *options[-1:]]
    paths = f"{Path(run_roll.__file__).parents[2]}:{Path(rlt_api.__file__).parents[1]}"
    env = {**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": paths}
    with open(folder / "errors", "w") as errors:
        return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, text=True)


def test_output_exit_code_config_and_checkpoint(address: str, tmp_path: Path) -> None:
    state = tmp_path / "runs/20260101-000000/checkpoint-20/pipeline/worker_state_pipeline.json"
    state.parent.mkdir(parents=True)
    state.touch()
    running = start(address, tmp_path, REPORT, "--checkpoints", str(tmp_path / "runs"), "x")
    output, _ = running.communicate()
    reported = json.loads(output.splitlines()[-1])
    assert running.returncode == 3
    assert reported["arguments"] == ["x", "--config_path", "../etc", "--config_name", "roll"]
    assert reported["RAY_ADDRESS"] == address
    assert reported["RLT_ROLL_CHECKPOINT"] == f"'{state.parents[1]}'"
    assert reported["CUDA_VISIBLE_DEVICES"] != ""


def test_program_does_not_start_without_its_devices(address: str, tmp_path: Path) -> None:
    config = 'devices: 4\nmax_steps: 9\nactor_train: {device_mapping: "list(range(0,${devices}))"}\n'
    running = start(address, tmp_path, REPORT, "x", config=config)
    assert (running.communicate()[0], running.returncode) == ("", 1)
    errors = (tmp_path / "errors").read_text()
    assert "run_roll: actor_train.device_mapping: list(range(0,4)): names device 3, and the job has 2" in errors
    assert "run_roll: Total training steps: 9\n" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_program_ends_with_its_launcher(address: str, tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "fifo")
    running = start(address, tmp_path, WAIT, str(tmp_path / "fifo"))
    with open(tmp_path / "fifo") as fifo:
        assert running.stdout
        assert running.stdout.readline() == "ready\n"
        running.send_signal(number)
        rest = running.stdout.read()
        assert fifo.read() == ""  # the program has ended
    assert (running.wait(), rest) == ((0, "saved\n") if number == signal.SIGTERM else (-number, ""))
