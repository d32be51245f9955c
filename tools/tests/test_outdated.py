"""The list of pins that are behind, from an index on loopback."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from outdated import (
    Fetch,
    Finding,
    IndexUnreachableError,
    Pin,
    describe_module,
    examine_package,
    format_finding,
    open_index,
    read_go_pins,
    read_python_pins,
)

PYPROJECT = """
[project]
dependencies = ["Direct.Package>=1", "other"]

[dependency-groups]
dev = ["tool<3"]
"""
METADATA = {
    "project_urls": {"Documentation": "https://example.com/docs", "Release notes": "https://example.com/notes"},
    "description": "A package.\n\n## 2.0\n- Breaking: `run` is asynchronous.\n- faster\n",
}


def describe_file(name: str, python: str = ">=3.9", yanked: bool | str = False) -> dict[str, Any]:
    return {"filename": name, "url": f"files/{name}", "requires-python": python, "yanked": yanked}


PAGES: Mapping[str, object] = {
    "/simple/direct-package/": {
        "files": [
            describe_file("direct_package-0.1-not-a-wheel.whl"),
            describe_file("direct_package-1.0-py3-none-any.whl"),
            describe_file("direct-package-2.0.tar.gz"),
            describe_file("direct-package-2.1rc1.tar.gz"),
            describe_file("direct-package-3.0.tar.gz", python=">=3.99"),
            describe_file("direct-package-4.0.tar.gz", yanked="broken"),
        ]
    },
    "/simple/withdrawn/": {"files": [describe_file("withdrawn-1.0.tar.gz", yanked="loses data")]},
    "/simple/new/": {"files": [describe_file("new-1.0-py3-none-any.whl")]},
    "/pypi/direct-package/json": {"info": METADATA},
}


class Index(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.path)
        self.send_response(200 if page else 404)
        self.end_headers()
        self.wfile.write(json.dumps(page).encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fetch]:
    """The index that pip is configured with."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        Thread(target=server.serve_forever).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        yield open_index()
        server.shutdown()


def test_a_pin_that_is_behind_has_its_changelog_and_warnings(index: Fetch) -> None:
    finding = examine_package(Pin("direct-package", "1.0", ("requirements/cli.txt",)), index)
    assert finding
    assert format_finding(finding) == (
        "direct-package 1.0 -> 2.0\n"
        "    requirements/cli.txt\n"
        "    https://example.com/notes\n"
        "    ! Breaking: `run` is asynchronous."
    )


def test_a_pin_that_is_the_newest_is_not_listed_unless_it_is_yanked_or_missing(index: Fetch) -> None:
    assert examine_package(Pin("new", "1.0", ()), index) is None
    withdrawn = examine_package(Pin("withdrawn", "1.0", ()), index)
    assert withdrawn
    assert format_finding(withdrawn) == "withdrawn 1.0\n    ! 1.0 is yanked: loses data"
    missing = examine_package(Pin("missing", "1.0", ()), index)
    assert missing
    assert format_finding(missing) == "missing 1.0\n    ! the index does not have this package"


def test_an_index_that_does_not_respond_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(IndexUnreachableError, match=r"does not respond \(ConnectionError\)\. .*PIP_INDEX_URL"):
        examine_package(Pin("new", "1.0", ()), open_index())


def test_direct_dependencies_are_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/a.txt").write_text("direct-package==1.0 ; x\n    --hash=sha256:1\nindirect==1\n")
    (tmp_path / "requirements/b.txt").write_text("direct-package==1.0\ntool==2\n")
    assert read_python_pins(tmp_path) == [
        Pin("direct-package", "1.0", ("requirements/a.txt", "requirements/b.txt")),
        Pin("tool", "2", ("requirements/b.txt",)),
    ]
    (tmp_path / "go.mod").write_text(
        "module m\n\nrequire example.com/one v1.0.0\n\n"
        "require (\n\texample.com/two v2.0.0\n\texample.com/three v3.0.0 // indirect\n)\n"
    )
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "go.mod"], cwd=tmp_path, check=True)
    assert read_go_pins(tmp_path) == [
        Pin("example.com/one", "v1.0.0", ("go.mod",)),
        Pin("example.com/two", "v2.0.0", ("go.mod",)),
    ]


def test_a_module_is_described_from_what_go_list_prints() -> None:
    pin = Pin("example.com/one", "v1.0.0", ("go.mod",))
    assert describe_module(pin, {"Version": "v1.0.0"}) is None
    newer = {
        "Version": "v1.0.0",
        "Update": {"Version": "v1.1.0"},
        "Retracted": ["it deadlocks"],
        "Deprecated": "use two",
    }
    assert describe_module(pin, newer) == Finding(
        pin, "v1.1.0", "https://example.com/one", ("v1.0.0 is retracted: it deadlocks", "deprecated: use two")
    )
    with pytest.raises(IndexUnreachableError, match=r"proxy does not respond: dial tcp: no route\. .*GOPROXY"):
        describe_module(pin, {"Error": {"Err": "dial tcp:\n\tno route"}})
