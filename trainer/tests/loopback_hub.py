"""A server with the part of the Hugging Face hub's API that uploads need: repositories, LFS objects and commits.

A commit takes effect as a whole. The card of a commit is validated as huggingface_hub reads it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from huggingface_hub import ModelCard

TOKENS: dict[str, dict[str, Any]] = {
    "write": {"name": "ada", "orgs": [{"name": "lab"}], "auth": {"accessToken": {"role": "write"}}},
    "read": {"name": "ada", "orgs": [{"name": "lab"}], "auth": {"accessToken": {"role": "read"}}},
}
LFS = (".safetensors",)


@dataclass
class Repository:
    """A model repository."""

    private: bool
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b"*.safetensors filter=lfs"})
    commits: list[str] = field(default_factory=lambda: [f"{0:040x}"])


class LoopbackHub(ThreadingHTTPServer):
    """The hub. `fail` returns the status of requests that fail, by method and path, and 0 for the others."""

    daemon_threads = True

    def __init__(self, address: str) -> None:
        super().__init__((address, 0), Answers)
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.uploads: list[str] = []
        """The digest of each LFS object that was uploaded."""
        self.fail: Callable[[str, str], int] = lambda method, path: 0
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        """The value of HF_ENDPOINT."""
        return f"http://{self.server_address[0]!s}:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: LoopbackHub
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self._read_body()
        path = self.path.partition("?")[0]
        if status := self.server.fail(self.command, path):
            self._send(status, {"error": "try again"})
            return
        user = TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
        with self.server.lock:
            if path.startswith("/objects/"):
                self._store(path.rpartition("/")[2], body)
            elif user is None:
                self._send(401, {"error": "Invalid username or password."})
            elif path == "/api/whoami-v2":
                self._send(200, {"type": "user", **user})
            elif self.command == "POST" and user["auth"]["accessToken"]["role"] == "read":
                self._send(403, {"error": "This token cannot write."})
            else:
                self._answer_user(path, body)

    do_GET = do_POST = do_PUT = answer

    def _answer_user(self, path: str, body: bytes) -> None:
        if path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._validate(json.loads(body)["content"])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/.+)?|/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            repository = self.server.repositories.get(match[1] or match[3])
            if repository is None:
                self._send(404, {"error": "Repository not found"})
            elif match[3]:
                self._list_missing(json.loads(body)["objects"])
            elif (match[2] or "").startswith("/preupload/"):
                self._choose_modes(repository, json.loads(body)["files"])
            elif (match[2] or "").startswith("/commit/"):
                self._commit(match[1], repository, body)
            else:
                siblings = [{"rfilename": name} for name in repository.files]
                self._send(200, {"id": match[1], "sha": repository.commits[-1], "siblings": siblings})
        else:
            self._send(404, {"error": path})

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        if wanted["organization"] not in ("ada", "lab"):
            self._send(403, {"error": f"You don't have the rights to create a model under {wanted['organization']}"})
        elif name in self.server.repositories:
            self._send(409, {"error": "You already created this model repo", "url": f"{self.server.endpoint}/{name}"})
        else:
            self.server.repositories[name] = Repository(private=wanted["visibility"] == "private")
            self._send(200, {"url": f"{self.server.endpoint}/{name}", "id": name})

    def _validate(self, content: str) -> None:
        try:
            ModelCard(content)
        except ValueError as error:
            self._send(400, {"errors": [{"message": str(error)}], "warnings": []})
        else:
            self._send(200, {"errors": [], "warnings": []})

    def _choose_modes(self, repository: Repository, files: list[dict[str, Any]]) -> None:
        modes = []
        for file in files:
            is_large = file["path"].endswith(LFS)
            content = repository.files.get(file["path"])
            oid = None if content is None else _sha256(content) if is_large else _git_sha1(content)
            mode = "lfs" if is_large else "regular"
            modes.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self._send(200, {"files": modes})

    def _list_missing(self, objects: list[dict[str, Any]]) -> None:
        answers = []
        for wanted in objects:
            upload = {"upload": {"href": f"{self.server.endpoint}/objects/{wanted['oid']}"}}
            has_it = wanted["oid"] in self.server.objects
            answers.append({**wanted, **({} if has_it else {"actions": upload})})
        self._send(200, {"transfer": "basic", "objects": answers})

    def _store(self, oid: str, body: bytes) -> None:
        if _sha256(body) != oid:
            self._send(400, {"error": "the digest differs"})
            return
        self.server.objects[oid] = body
        self.server.uploads.append(oid)
        self._send(200, {})

    def _commit(self, name: str, repository: Repository, body: bytes) -> None:
        files = dict(repository.files)
        for line in body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            match operation["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.server.objects[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        repository.files = files
        repository.commits.append(hashlib.sha1(f"{len(repository.commits)}".encode()).hexdigest())
        url = f"{self.server.endpoint}/{name}/commit/{repository.commits[-1]}"
        self._send(200, {"success": True, "commitOid": repository.commits[-1], "commitUrl": url})

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def loopback_hub(address: str = "127.0.0.1") -> Iterator[LoopbackHub]:
    """Run the hub on an address of the machine."""
    hub = LoopbackHub(address)
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
