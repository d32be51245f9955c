"""The download of a model and of data, from a server that answers like the hub: killed in the middle, and resumed."""

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

from rlt_pod.download.data_files import select_data_files
from rlt_pod.report.download_report import format_progress, read_progress

COMMIT = "c" * 40
WEIGHTS = bytes(range(256)) * 2**14
"""4 MiB."""
FIRST_PART = 3 * 2**20
CONTENT = {"config.json": b'{"model_type": "qwen3"}', "model.safetensors": WEIGHTS, "onnx/model.onnx": b"unused"}
ROWS = b'{"prompt": "1+1=", "answer": "2"}\n' * 2**17
"""About 4 MiB."""
DATA = {
    "README.md": b"---\nconfigs: [{config_name: main, data_files: [{split: train, path: main/train-*}]}]\n---\n",
    "main/train-0.jsonl": ROWS,
    "socratic/train-0.jsonl": b"unused",
    "figure.png": b"unused",
}
CARD = {
    "configs": [
        {"config_name": "main", "data_files": [{"split": "train", "path": "main/train-*"}]},
        {"config_name": "socratic", "data_files": "socratic/*"},
    ]
}
POD = Path(__file__).parents[1]


class TinyHub(ThreadingHTTPServer):
    """Serves org/open and the data set org/data to all, and org/gated to those with the token t. The first request for
    a file of MiBs stops after FIRST_PART until `stopped` is set."""

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
        elif self.path.startswith("/datasets/"):
            self._send_file(DATA[self.path.partition(f"/datasets/org/data/resolve/{COMMIT}/")[2]])
        elif "/resolve/" in self.path:
            self._send_file(CONTENT[self.path.partition(f"/resolve/{COMMIT}/")[2]])
        elif "/org/none/" in self.path:
            self.send_response(404)
            self.end_headers()
        elif self.path.startswith(f"/api/datasets/org/data/tree/{COMMIT}/main?"):
            content = DATA["main/train-0.jsonl"]
            file = {"type": "file", "path": "main/train-0.jsonl", "size": len(content), "oid": COMMIT}
            self._send(json.dumps([file]).encode())
        elif self.path.startswith(f"/api/datasets/org/data/tree/{COMMIT}?"):
            self._send(json.dumps([{"type": "directory", "path": "main", "oid": COMMIT}]).encode())
        elif self.path.startswith("/api/datasets/org/data/revision/"):
            self._send_list(DATA, cardData=CARD, id="org/data")
        else:
            self._send_list(CONTENT)

    def do_HEAD(self) -> None:
        is_card = self.path.endswith("/README.md")
        self.send_response(200 if is_card else 404)
        self.send_header("X-Error-Code", "" if is_card else "EntryNotFound")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", str(describe("README.md", DATA["README.md"])["blobId"]))
        self.send_header("Content-Length", str(len(DATA["README.md"])))
        self.end_headers()

    def _send_list(self, files: dict[str, bytes], **more: object) -> None:
        siblings = [describe(name, content) for name, content in files.items()]
        self._send(json.dumps({"sha": COMMIT, "siblings": siblings, **more}).encode())

    def _send_file(self, content: bytes) -> None:
        given = self.headers["Range"]
        start = int(given.removeprefix("bytes=").removesuffix("-")) if given else 0
        if len(content) < 2**20:
            self._send(content)
            return
        self.server.ranges.append(given)
        if len(self.server.ranges) > 1:
            self._send(content[start:], 206 if given else 200)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:FIRST_PART])
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


def describe(name: str, content: bytes) -> dict[str, object]:
    large = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
    entry = {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
    return {**entry, "lfs": large} if len(content) > 2**20 else entry


@pytest.fixture
def hub() -> Iterator[TinyHub]:
    server = TinyHub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.stopped.set()
    server.shutdown()
    server.server_close()


def start(hub: TinyHub, home: Path, *names: str, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "no_proxy": "127.0.0.1", **more}
    environment.pop("HF_HUB_CACHE", None)
    command = [sys.executable, str(POD / "rlt_pod/__main__.py"), "download", *(names or ["org/open"])]
    environment["PYTHONPATH"] = str(POD)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(hub: TinyHub, home: Path, *names: str, **more: str) -> tuple[int, str, str]:
    process = start(hub, home, *names, **more)
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
    assert read_progress(output) == "4.0 of 4.0 MiB (100%)"
    snapshot = Path(output.splitlines()[-1])
    assert (snapshot / "model.safetensors").read_bytes() == WEIGHTS
    assert not (snapshot / "onnx").exists()
    assert find_with_huggingface_hub(tmp_path) == str(snapshot)

    assert run(hub, tmp_path)[0] == 0
    assert len(hub.ranges) == 2, "nothing is downloaded again"


def test_killed_data_are_resumed_and_read_without_another_download(hub: TinyHub, tmp_path: Path) -> None:
    killed = start(hub, tmp_path, "--dataset", "org/data:main")
    assert hub.sent.wait(60)
    partial = tmp_path / "hub/datasets--org--data/blobs" / f"{hashlib.sha256(ROWS).hexdigest()}.rlt-partial"
    wait_for_size(partial, 2 * 2**20)
    killed.kill()
    killed.communicate()
    existing = partial.stat().st_size
    hub.stopped.set()

    code, output, error = run(hub, tmp_path, "--dataset", "org/data:main")
    assert (code, error) == (0, "")
    assert hub.ranges == [None, f"bytes={existing}-"]
    assert read_progress(output) == "4.3 of 4.3 MiB (100%)"
    snapshot = Path(output.splitlines()[-1])
    found = {str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()}
    assert found == {"README.md", "main/train-0.jsonl"}
    assert (snapshot / "main/train-0.jsonl").read_bytes() == ROWS
    assert load_with_datasets(hub, tmp_path) == f"{2**17} 1+1="
    assert len(hub.ranges) == 2, "nothing is downloaded again"
    assert run(hub, tmp_path, "--dataset", "org/data:main", HF_ENDPOINT="http://127.0.0.1:1")[0] == 0


@pytest.mark.parametrize(
    ("configs", "config", "expected"),
    [
        (None, None, ["a/train.parquet", "b/test.jsonl"]),
        ([{"config_name": "a", "data_files": "a/*"}], None, ["a/train.parquet"]),
        ([{"config_name": "a", "data_dir": "a"}, {"config_name": "b", "data_dir": "b"}], "b", ["b/test.jsonl"]),
        ([{"config_name": "a", "data_dir": "a"}, {"config_name": "b", "data_dir": "b"}], None, []),
        (
            [{"config_name": "a", "data_dir": "a"}, {"config_name": "b", "default": True}],
            None,
            ["a/train.parquet", "b/test.jsonl"],
        ),
        ([{"config_name": "default", "data_files": {"split": "x", "path": ["**/*.jsonl"]}}], None, ["b/test.jsonl"]),
        ([{"config_name": "a"}], "c", []),
    ],
)
def test_the_files_of_a_configuration(
    configs: list[dict[str, object]] | None, config: str | None, expected: list[str]
) -> None:
    names = ["README.md", "a/train.parquet", "b/test.jsonl", "logo.png"]
    assert select_data_files(names, {"configs": configs}, config) == ["README.md", *expected]


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


def load_with_datasets(hub: TinyHub, home: Path) -> str:
    """Number of the rows and the first prompt, as the trainer reads them."""
    program = (
        "import datasets; d = datasets.load_dataset('org/data', 'main', split='train'); print(len(d), d[0]['prompt'])"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "no_proxy": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


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
    code, _, error = run(hub, tmp_path, "--dataset", "org/none")
    assert code == 1
    assert "org/none, revision main cannot be downloaded" in error
    assert "Check the name and the revision in spec.data." in error


def test_the_latest_line_of_progress_is_read() -> None:
    lines = ["start", format_progress(2**30, 4 * 2**30), format_progress(2 * 2**30, 4 * 2**30), "other"]
    assert read_progress("\n".join(lines)) == "2.0 of 4.0 GiB (50%)"
    assert read_progress("other") is None
