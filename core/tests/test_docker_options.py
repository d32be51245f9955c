"""The docker commands of rendered jobs with AMD devices: bash parses the scripts, and the docker CLI the options."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_targets import VERL, launch

from rlt_core.targets.docker import build_docker_script
from rlt_core.targets.slurm import SlurmOptions, build_slurm_script

DOCKER = shutil.which("docker")
GETENT = '#!/bin/bash\n[ "$*" = "group render" ] && echo render:x:992:\n'
RECORDER = '#!/bin/bash\nprintf "%s\\0" "$@" > "$RECORD"\n'
AMD_OPTIONS = {"--device=/dev/kfd", "--device=/dev/dri", "--group-add=video", "--group-add=992"}


def write_program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def build_script(storage: Path, build: Callable[..., str], *options: SlurmOptions) -> str:
    return build(launch("verl", VERL, storage=str(storage)), *options)


def read_docker_arguments(folder: Path, script: str) -> list[str]:
    """Run bash on a script, with a recorder in the place of docker. Returns the arguments of `docker run`."""
    write_program(folder, "getent", GETENT)
    write_program(folder, "docker", RECORDER)
    record = folder / "arguments"
    variables = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "RECORD": str(record),
        "WANDB_API_KEY": "key",
        "SLURM_JOB_ID": "7",
    }
    file = folder / "script.sh"
    file.write_text(script)
    subprocess.run(["bash", file, "head"], env=variables, check=True)
    return record.read_text().split("\0")[:-1]


def cut_slurm_command(script: str) -> str:
    """The command that runs on each node, without srun and the steps around it."""
    (command,) = re.findall(r"--kill-on-bad-exit=1 \\\n  (docker run .*?) &\n", script, re.DOTALL)
    (container,) = re.findall(r"^container=.*$", script, re.MULTILINE)
    return f"files=/tmp\n{container}\n{command}"


class Daemon(socketserver.ThreadingUnixStreamServer):
    """A daemon of Docker that records the request for a container, and rejects it."""

    container: dict[str, Any]


class Handler(http.server.BaseHTTPRequestHandler):
    """GET and HEAD are /_ping, POST is /containers/create: https://docs.docker.com/reference/api/engine/"""

    server: Daemon

    def do_HEAD(self) -> None:
        self.answer(200, b"")

    def do_GET(self) -> None:
        self.answer(200, b"OK")

    def do_POST(self) -> None:
        self.server.container = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(500, b'{"message": "recorded"}')

    def answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        for name, value in {"OSType": "linux", "Api-Version": "1.44", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory() as folder, Daemon(f"{folder}/docker.sock", Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def build_arguments(target: str, folder: Path) -> list[str]:
    if target == "docker":
        return read_docker_arguments(folder, build_script(folder, build_docker_script))
    script = build_script(folder, build_slurm_script, SlurmOptions("docker"))
    return read_docker_arguments(folder, cut_slurm_command(script))


@pytest.mark.parametrize("target", ["docker", "slurm"])
def test_a_container_gets_the_devices_and_groups_of_amd(target: str, tmp_path: Path) -> None:
    arguments = build_arguments(target, tmp_path)
    assert arguments[0] == "run"
    assert set(arguments) >= AMD_OPTIONS | {"--device=/dev/infiniband", "--ulimit=memlock=-1", "--network=host"}
    assert not any(each.startswith("--gpus") for each in arguments)
    assert ("--env=ROCR_VISIBLE_DEVICES" in arguments) == (target == "slurm")
    image = arguments.index("registry.example/verl:rocm")
    assert all(each.startswith("--") for each in arguments[1:image]), "each option has its value in the same word"


@pytest.mark.skipif(DOCKER is None, reason="no docker")
@pytest.mark.parametrize("target", ["docker", "slurm"])
def test_the_docker_cli_requests_the_container(target: str, tmp_path: Path, daemon: Daemon) -> None:
    """The daemon is a recorder: the request is the CLI's reading of the options."""
    assert DOCKER
    command = [DOCKER, f"--host=unix://{daemon.server_address}", *build_arguments(target, tmp_path)]
    variables = {**os.environ, "ROCR_VISIBLE_DEVICES": "4,5,6,7"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert "recorded" in done.stderr
    host = daemon.container["HostConfig"]
    assert [each["PathInContainer"] for each in host["Devices"]] == ["/dev/kfd", "/dev/dri", "/dev/infiniband"]
    assert host["GroupAdd"] == ["video", "992", "109"]
    assert (host["NetworkMode"], host["ShmSize"], host["Privileged"]) == ("host", 128 * 2**30, False)
    assert {each["Name"]: each["Hard"] for each in host["Ulimits"]}["memlock"] == -1
    assert host["Binds"] == [f"{tmp_path}:{tmp_path}"]
    assert ("ROCR_VISIBLE_DEVICES=4,5,6,7" in daemon.container["Env"]) == (target == "slurm")
    assert daemon.container["Cmd"][0] == {"docker": "start", "slurm": "bash"}[target]


@pytest.mark.parametrize("build", [build_docker_script, lambda job: build_slurm_script(job, SlurmOptions("docker"))])
def test_bash_parses_the_script(build: Callable[..., str], tmp_path: Path) -> None:
    subprocess.run(["bash", "-n"], input=build_script(tmp_path, build), text=True, check=True)
