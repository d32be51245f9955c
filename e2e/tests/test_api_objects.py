"""Objects read and written in this process, as kubectl does."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rlt_e2e.api_objects import create_object, read_object
from rlt_e2e.cluster import Cluster


def connect(folder: Path, port: int) -> Cluster:
    """A client of an API server on a port of this machine."""
    context = {"name": "test", "context": {"cluster": "test", "user": "test"}}
    config = {
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [context],
        "current-context": "test",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    return Cluster(folder / "kubeconfig", None)


class WithoutApi(BaseHTTPRequestHandler):
    """Responds as kube-apiserver before it serves the API of a CRD: with 404 and a line of text."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"404 page not found\n")

    do_POST = do_GET


@pytest.fixture
def without_api(tmp_path: Path) -> Iterator[Cluster]:
    with HTTPServer(("127.0.0.1", 0), WithoutApi) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield connect(tmp_path, server.server_port)
        server.shutdown()
        thread.join()


def test_an_api_server_that_does_not_answer_is_an_error_with_the_object(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ValueError, match="namespaces/team/rltrainingjobs/sum: "):
        read_object(connect(tmp_path, port), "team", "rltrainingjob", "sum")


def test_an_object_of_an_api_that_is_not_served_does_not_exist(without_api: Cluster) -> None:
    assert read_object(without_api, "team", "rltrainingjob", "sum") is None


def test_an_error_without_json_has_the_text_of_the_response(without_api: Cluster) -> None:
    with pytest.raises(ValueError, match="namespaces/team/rltrainingjobs: 404 page not found"):
        create_object(without_api, "team", {"kind": "RLTrainingJob", "metadata": {"name": "sum"}})
