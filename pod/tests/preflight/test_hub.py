"""The check of models and data sets on the Hugging Face hub, with a server that answers like the hub."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rlt_pod.preflight.expected import Repository
from rlt_pod.preflight.facts.hub import HubProblem, find_hub_problems

ANSWERS = {
    "/org/open/resolve/main/config.json": (200, ""),
    "/org/moved/resolve/main/config.json": (307, ""),
    "/org/open/resolve/v1%2Fx/config.json": (404, "RevisionNotFound"),
    "/org/gguf/resolve/main/config.json": (404, "EntryNotFound"),
    "/org/none/resolve/main/config.json": (401, "RepoNotFound"),
    "/org/busy/resolve/main/config.json": (503, ""),
    "/api/datasets/org/rows/revision/main": (200, ""),
}


class Hub(BaseHTTPRequestHandler):
    """Gives org/gated to those with the token t."""

    def do_HEAD(self) -> None:
        status, code = ANSWERS.get(self.path, (403, "GatedRepo"))
        if self.path.startswith("/org/gated/") and self.headers["Authorization"] == "Bearer t":
            status = 200
            code = ""
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        if status == 307:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def find(name: str, kind: str = "model", revision: str | None = None, **environment: str) -> list[HubProblem]:
    return find_hub_problems([Repository(name, kind, revision)], {"no_proxy": "127.0.0.1", **environment})


@pytest.mark.parametrize(("name", "kind"), [("org/open", "model"), ("org/moved", "model"), ("org/rows", "dataset")])
def test_what_the_hub_has_is_accepted(endpoint: str, tmp_path: Path, name: str, kind: str) -> None:
    """A redirect is not followed: the address of the answer accepts no connections."""
    assert find(name, kind, HF_ENDPOINT=f"{endpoint}/", HF_HOME=str(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "revision", "reason", "is_certain"),
    [
        ("org/open", "v1/x", "it does not have the revision", True),
        ("org/none", None, "it does not exist, or is private", True),
        ("org/gated", None, "its owner gives access to some accounts", True),
        ("org/gguf", None, "it has no config.json", False),
        ("org/busy", None, "the hub answers 503", False),
    ],
)
def test_the_answer_of_the_hub_is_the_reason(
    endpoint: str, tmp_path: Path, name: str, revision: str | None, reason: str, is_certain: bool
) -> None:
    (found,) = find(name, revision=revision, HF_ENDPOINT=endpoint, HF_HOME=str(tmp_path))
    assert (found.repository, found.is_certain) == (name, is_certain)
    assert found.reason.startswith(reason)


def test_a_token_gives_access(endpoint: str, tmp_path: Path) -> None:
    place = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)}
    assert find("org/gated", HF_TOKEN="t", **place) == []
    assert find("org/gated", HF_TOKEN="u", **place)
    (tmp_path / "token").write_text("t\n")
    assert find("org/gated", **place) == []


def test_a_hub_that_is_not_reachable_is_not_certain(tmp_path: Path) -> None:
    (found,) = find("org/open", HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path))
    assert not found.is_certain
    assert "cannot be reached: [Errno 111] Connection refused" in found.reason


def test_what_the_cache_has_is_not_asked_for(tmp_path: Path) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    (found,) = find("org/open", **offline)
    assert (found.is_certain, "the hub is offline" in found.reason) == (True, True)
    config = tmp_path / "hub/models--org--open/snapshots/0f1e/config.json"
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    assert find("org/open", **offline) == find("org/open", HF_HOME=str(tmp_path)) == []
    assert find("org/other", **offline)
