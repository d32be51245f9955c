"""A run's bucket that fills, and connections that are lost or slow, with a real S3 server behind a proxy."""

from __future__ import annotations

import os
import re
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from bucket_ranks import load_latest
from ranks import run_ranks
from s3_proxy import FULL, QUOTA, Cut, Decision, Fault, Request, s3_proxy
from test_bucket_s3 import find_place, open_s3, run_two_ranks, server, url

from rlt_trainer.bucket import s3
from rlt_trainer.bucket.objects import BucketError

__all__ = ["server", "url"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fault", [FULL, QUOTA], ids=lambda fault: fault.code)
def test_a_full_bucket_costs_a_checkpoint(server: str, url: str, tmp_path: Path, fault: Fault) -> None:
    """The run continues, and saves its next checkpoint when the bucket has space again."""

    def fill(request: Request) -> Decision:
        return fault if request.method == "PUT" and "/step-2/" in request.key else True

    with s3_proxy(server, fill) as proxy:
        outcomes = run_two_ranks(find_place(url, proxy), tmp_path / "saving", range(1, 4))
    assert [(step, error is None) for step, error in outcomes] == [(1, True), (2, False), (3, True)]
    reason = rf"step 2 was not uploaded \(rank 0: .*{fault.code}: {fault.message} The bucket is full: raise its quota"
    assert re.search(reason, outcomes[1][1] or ""), outcomes
    assert run_ranks(load_latest, [(find_place(url, server), tmp_path / "loading", 0, 1)]) == [(3, True)]


@pytest.mark.parametrize("fault", [FULL, QUOTA], ids=lambda fault: fault.code)
def test_a_bucket_that_is_full_at_the_start_is_an_error(
    server: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(s3, "MAX_RETRIES", 0)
    with (
        s3_proxy(server, lambda request: fault if request.method == "PUT" else True) as proxy,
        pytest.raises(BucketError, match=f"{fault.code}: .*The bucket is full") as caught,
    ):
        open_s3(url, proxy).put_if_absent("x", b"1")
    assert caught.value.problem.startswith(f"{url}/x could not be written: ")


@pytest.mark.parametrize("cut", Cut, ids=lambda cut: cut.name)
def test_lost_connections_change_nothing(server: str, url: str, tmp_path: Path, cut: Cut) -> None:
    """Every third connection ends early, and the first one for each marker."""
    markers: list[str] = []

    def lose(request: Request) -> Decision:
        if request.method == "PUT" and request.key.endswith("/complete") and request.key not in markers:
            markers.append(request.key)
            return cut
        return True if request.number % 3 else cut

    with s3_proxy(server, lose) as proxy:
        outcomes = run_two_ranks(find_place(url, proxy), tmp_path / "saving", range(1, 4))
        assert run_ranks(load_latest, [(find_place(url, proxy), tmp_path / "loading", 0, 1)]) == [(3, True)]
    assert outcomes == [(1, None), (2, None), (3, None)]
    assert len(markers) == 3


def test_a_server_that_does_not_answer_is_asked_again(
    server: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request of each kind has no answer until the second one has arrived."""
    monkeypatch.setattr(s3, "REQUEST_TIMEOUT", timedelta(seconds=1))
    second = {"PUT": threading.Event(), "GET": threading.Event()}
    seen: list[str] = []

    def hold(request: Request) -> Decision:
        if request.method not in second:
            return True
        if request.method in seen:
            second[request.method].set()
            return True
        seen.append(request.method)
        second[request.method].wait(timeout=60)
        return Cut.BEFORE

    file = tmp_path / "file"
    file.write_bytes(os.urandom(1000))
    with s3_proxy(server, hold) as proxy:
        objects = open_s3(url, proxy)
        objects.put("file", file)
        objects.get("file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == file.read_bytes()
    assert all(event.is_set() for event in second.values())
