"""Servers that cannot hold a run: not S3, without conditional puts, or of a bucket in another region."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from s3_proxy import Fault

from rlt_api.spec.training_config import RunBucket
from rlt_trainer.bucket.check import check_bucket
from rlt_trainer.bucket.objects import BucketError
from rlt_trainer.bucket.s3 import NO_S3, REGION, S3Objects

EMPTY_LIST = b"<ListBucketResult></ListBucketResult>"
PAGE = b"<html><head><title>Welcome</title></head></html>"
MOVED = Fault(301, "PermanentRedirect", "The bucket must be addressed using the specified endpoint.")
NO_CONDITIONS = Fault(501, "NotImplemented", "A header you provided implies functionality that is not implemented.")


@contextmanager
def answer_with(answers: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """Yield the URL of a server with an answer for each method."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answers.get(self.command, (204, b""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answers", "cause", "fix"),
    [
        ({"GET": (200, PAGE), "PUT": (200, PAGE)}, "ETag Header missing", NO_S3),
        ({"GET": (404, PAGE)}, "404 Not Found", NO_S3),
        ({"GET": (301, b"")}, "redirect without LOCATION", REGION),
        ({"GET": (301, MOVED.body)}, "redirect without LOCATION", REGION),
        ({"GET": (200, EMPTY_LIST), "PUT": (501, NO_CONDITIONS.body)}, "NotImplemented", "has no conditional puts"),
    ],
)
def test_an_unusable_server_has_its_fix(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, bytes]], cause: str, fix: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with answer_with(answers) as server, pytest.raises(BucketError) as caught:
        check_bucket(S3Objects(RunBucket(url="s3://runs/x", endpoint=server), max_retries=0))
    assert cause in caught.value.problem
    assert fix in caught.value.fix
