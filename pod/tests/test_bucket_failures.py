"""Failures of a bucket's server, and of the service that gives a pod its credentials: temporary ones are repeated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rlt_pod.download import bucket as module
from rlt_pod.download.bucket import Location, Server
from rlt_pod.download.signature import Keys
from rlt_pod.download.transfer import DownloadError

LOCATION = Location("spec.model.path", "s3://models/q")
KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


class Failing(ThreadingHTTPServer):
    """A server that answers each request with `status` and half of an error's text."""

    status = 503


class Answers(BaseHTTPRequestHandler):
    server: Failing

    def answer(self) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"<Error><Code>NoSuch")

    do_GET = do_PUT = answer

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Failing]:
    server = Failing(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def find_url(server: Failing) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_half_of_an_error_is_final_with_its_status(server: Failing) -> None:
    server.status = 403
    with pytest.raises(DownloadError, match=r"s3://models/q cannot be read: AccessDenied: Forbidden\. Give the user"):
        Server(find_url(server), KEYS).list_objects(LOCATION)


@pytest.mark.parametrize("variable", ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_EC2_METADATA_SERVICE_ENDPOINT"])
def test_a_service_of_credentials_that_is_overloaded_is_asked_again(server: Failing, variable: str) -> None:
    """An OSError is repeated."""
    bucket = Server(find_url(server), {variable: find_url(server)})
    with pytest.raises(OSError, match=r"the identity of the pod gets no credentials \(503 Service Unavailable\)"):
        bucket.list_objects(LOCATION)
    server.status = 404
    with pytest.raises(DownloadError, match=r"(gets no credentials|its credentials are missing)"):
        bucket.list_objects(LOCATION)


def test_a_node_that_gave_credentials_is_asked_again(server: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata service does not answer: a node of another provider is like that from the start."""
    found = iter([Keys("id", "secret", "", "us-east-1"), None])
    monkeypatch.setattr(module, "find_keys", lambda environment: next(found))
    monkeypatch.setattr(module, "KEYS_AGE_S", -1.0)
    bucket = Server(find_url(server), {})
    for problem in ("answers 503", "does not answer any longer"):
        with pytest.raises(OSError, match=problem):
            bucket.list_objects(LOCATION)
