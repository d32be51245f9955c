"""The download of a model, from a server that answers like the hub: killed in the middle, and resumed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rlt_pod.report.download_report import format_progress, read_progress

COMMIT = "c" * 40
WEIGHTS = bytes(range(256)) * 2**14
"""4 MiB."""
FIRST_PART = 3 * 2**20
CONTENT = {"config.json": b'{"model_type": "qwen3"}', "model.safetensors": WEIGHTS, "onnx/model.onnx": b"unused"}
POD = Path(__file__).parents[1]


class TinyHub(ThreadingHTTPServer):
    """Serves org/open to all and org/gated to those with the token t. The first request for the weights stops after
    FIRST_PART until `stopped` is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.stopped = threading.Event()
        self.sent = threading.Event()
        self.ranges: list[str | None] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: TinyHub

    def do_GET(self) -> None:
        if "org/gated" in self.path and self.headers["Authorization"] != "Bearer t":
            self.send_response(401)
            self.send_header("X-Error-Code", "GatedRepo")
            self.end_headers()
        elif "/resolve/" in self.path:
            self._send_file(self.path.partition(f"/resolve/{COMMIT}/")[2])
        elif self.path.startswith("/api/models/org/none/"):
            self.send_response(404)
            self.end_headers()
        else:
            self._send(json.dumps({"sha": COMMIT, "siblings": [describe(name) for name in CONTENT]}).encode())

    def _send_file(self, name: str) -> None:
        given = self.headers["Range"]
        start = int(given.removeprefix("bytes=").removesuffix("-")) if given else 0
        if name != "model.safetensors":
            self._send(CONTENT[name])
            return
        self.server.ranges.append(given)
        if len(self.server.ranges) > 1:
            self._send(WEIGHTS[start:], 206 if given else 200)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(WEIGHTS)))
        self.end_headers()
        self.wfile.write(WEIGHTS[:FIRST_PART])
        self.wfile.flush()
        self.server.sent.set()
        self.server.stopped.wait()

    def _send(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def describe(name: str) -> dict[str, object]:
    content = CONTENT[name]
    large = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    entry = {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
    return {**entry, "lfs": large} if name.endswith(".safetensors") else entry


@pytest.fixture
def hub() -> Iterator[TinyHub]:
    server = TinyHub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.stopped.set()
    server.shutdown()
    server.server_close()


def start(hub: TinyHub, home: Path, name: str = "org/open", **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "no_proxy": "127.0.0.1", **more}
    environment.pop("HF_HUB_CACHE", None)
    command = [sys.executable, str(POD / "rlt_pod/__main__.py"), "download", name]
    environment["PYTHONPATH"] = str(POD)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(hub: TinyHub, home: Path, name: str = "org/open", **more: str) -> tuple[int, str, str]:
    process = start(hub, home, name, **more)
    output, error = process.communicate(timeout=60)
    return process.returncode, output, error


def test_a_killed_download_is_resumed_and_huggingface_hub_finds_the_model(hub: TinyHub, tmp_path: Path) -> None:
    killed = start(hub, tmp_path)
    assert hub.sent.wait(60)
    partial = tmp_path / "hub/models--org--open/blobs" / f"{hashlib.sha256(WEIGHTS).hexdigest()}.rlt-partial"
    assert killed.stdout
    assert "rlt-download: " in killed.stdout.readline()
    wait_for_size(partial, 2 * 2**20)
    killed.kill()
    killed.communicate()
    existing = partial.stat().st_size
    hub.stopped.set()

    code, output, error = run(hub, tmp_path)
    assert (code, error) == (0, "")
    assert hub.ranges == [None, f"bytes={existing}-"]
    assert read_progress(output) == "0.0 of 0.0 GiB (100%)"
    snapshot = Path(output.splitlines()[-1])
    assert (snapshot / "model.safetensors").read_bytes() == WEIGHTS
    assert not (snapshot / "onnx").exists()
    assert find_with_huggingface_hub(tmp_path) == str(snapshot)

    assert run(hub, tmp_path)[0] == 0
    assert len(hub.ranges) == 2, "nothing is downloaded again"


def test_jobs_that_share_a_volume_download_once(hub: TinyHub, tmp_path: Path) -> None:
    first = start(hub, tmp_path)
    assert hub.sent.wait(60)
    second = start(hub, tmp_path)
    hub.stopped.set()
    assert [process.communicate(timeout=60)[1] for process in (first, second)] == ["", ""]
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(hub.ranges) == 2, "the first program continues its file, and the second one downloads nothing"


def test_an_earlier_download_is_enough_without_the_hub(hub: TinyHub, tmp_path: Path) -> None:
    unreachable = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    code, _, error = run(hub, tmp_path, **unreachable)
    assert (code, error[:7]) == (1, "error: ")
    hub.stopped.set()
    assert run(hub, tmp_path)[0] == 0
    code, output, _ = run(hub, tmp_path, **unreachable)
    assert code == 0
    assert (Path(output.splitlines()[-1]) / "model.safetensors").read_bytes() == WEIGHTS


def wait_for_size(path: Path, size: int) -> None:
    """Wait until another process has written `size` bytes."""
    wait = threading.Event()
    for _ in range(600):
        if path.exists() and path.stat().st_size >= size:
            return
        wait.wait(0.1)
    raise AssertionError(f"{path} has less than {size} bytes")


def find_with_huggingface_hub(home: Path) -> str:
    """The folder of the model, as the trainer finds it offline."""
    program = "from huggingface_hub import snapshot_download as find; print(find('org/open'))"
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_gated_model_names_the_secret(hub: TinyHub, tmp_path: Path) -> None:
    code, _, error = run(hub, tmp_path, "org/gated")
    assert code == 1
    assert "its owner gives access to some accounts" in error
    assert "kubectl create secret generic hub --from-literal=token=hf_..." in error
    assert "spec.cluster.env: [{name: HF_TOKEN, secretKeyRef: {name: hub, key: token}}]" in error
    assert not (tmp_path / "hub").exists()
    hub.stopped.set()
    assert run(hub, tmp_path, "org/gated", HF_TOKEN="t")[0] == 0


def test_a_model_that_does_not_exist_names_the_field(hub: TinyHub, tmp_path: Path) -> None:
    code, _, error = run(hub, tmp_path, "org/none")
    assert code == 1
    assert "Check spec.model.path and spec.model.revision." in error


def test_the_latest_line_of_progress_is_read() -> None:
    lines = ["start", format_progress(2**30, 4 * 2**30), format_progress(2 * 2**30, 4 * 2**30), "other"]
    assert read_progress("\n".join(lines)) == "2.0 of 4.0 GiB (50%)"
    assert read_progress("other") is None
