"""The server of `rlt serve` on the CPU: the command line of its container, with the environment of the container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from job_specs import BUILTIN, merged

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.model_server import ServedModel, build_server_command
from rlt_e2e.cluster.addons import CACHE_VARIABLES, COMPILED
from rlt_e2e.ports import free_port

START_TIMEOUT_S = 300.0


@contextmanager
def serve(job: str, model: ServedModel, folder: Path, changes: dict[str, Any]) -> Iterator[str]:
    """Yield the URL of a server for a model of `job`, until the end of the context.

    `changes` are of the spec. `folder` gets the log and is the home of the server.
    """
    spec = RLTrainingJobSpec.model_validate(merged(BUILTIN, changes))
    port = free_port()
    python, *arguments = build_server_command(job, spec, model)
    assert python == "python3"
    arguments[arguments.index("--port") + 1] = str(port)
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HOME": str(folder)}
    variables |= {name: str(COMPILED / name.lower()) for name in CACHE_VARIABLES}  # the compilation takes a minute
    log = folder / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables, "no_proxy": "127.0.0.1"},
        )
    try:
        await_health(server, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=60)


def await_health(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=10).close()
        except (URLError, OSError):
            assert server.poll() is None, log.read_text()[-5000:]
            assert time.monotonic() < deadline, log.read_text()[-5000:]
            time.sleep(0.2)
        else:
            return


def post(url: str, content: object) -> Any:
    """Send a request, and return the response."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def complete(url: str, model: str, prompt: list[int], length: int) -> tuple[list[int], list[float]]:
    """Return the greedy tokens after a prompt, and their log-probabilities."""
    request = {"model": model, "prompt": prompt, "max_tokens": length, "temperature": 0, "logprobs": 0}
    request |= {"return_token_ids": True, "ignore_eos": True}
    (choice,) = post(f"{url}/v1/completions", request)["choices"]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]
