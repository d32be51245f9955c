"""The record of deleted jobs: what it keeps, that a job counts once, and its bounds."""

from __future__ import annotations

import base64
import gzip
import json
import random
from typing import Any

import pytest

from rlt_core.job import Manifest
from rlt_core.names import CREATOR_ANNOTATION
from rlt_core.usage_record import (
    FIELD,
    MAX_BYTES,
    MAX_JOBS,
    MAX_NAME,
    MAX_TEXT_BYTES,
    build_record,
    merge_jobs,
    name_record,
    parse_record,
    reduce_job,
)

USAGE = {
    "acceleratorSeconds": 900,
    "by": {"idle": 0, "update": 900},
    "days": [{"day": "2026-01-02", "by": {"idle": 0, "update": 900}}],
    "observedTime": "2026-01-02T03:00:00Z",
    "accelerators": 8,
    "run": {"startTime": "2026-01-02T00:00:00Z"},
}


def job(uid: str, time: str = "2026-01-02T03:00:00Z", **status: Any) -> dict[str, Any]:
    metadata = {"namespace": "a", "name": f"job-{uid}", "uid": uid, "labels": {"team": "x"}, "resourceVersion": "9"}
    workers = [{"accelerator": None}, {"accelerator": {"resourceName": "nvidia.com/gpu", "count": 8}}]
    usage = {**USAGE, "observedTime": time}
    return {"metadata": metadata, "spec": {"cluster": {"workers": workers}}, "status": {"usage": usage, **status}}


def kept(uid: str, time: str = "2026-01-02T03:00:00Z", **status: Any) -> Manifest:
    reduced = reduce_job(job(uid, time, **status))
    assert reduced
    return reduced


def test_the_creator_is_kept() -> None:
    created = job("1")
    created["metadata"]["annotations"] = {CREATOR_ANNOTATION: "jane" * 100, "team": "x"}
    reduced = reduce_job(created)
    assert reduced
    assert reduced["metadata"]["annotations"] == {CREATOR_ANNOTATION: ("jane" * 100)[:MAX_NAME]}


def test_what_the_usage_depends_on_is_kept() -> None:
    network = {"evidence": ["8 GPUs", "product H100: label (2 nodes)"], "profile": "ib"}
    assert kept("1", model="Qwen3", network=network, message="done") == {
        "metadata": {"namespace": "a", "name": "job-1", "uid": "1"},
        "spec": {"cluster": {"workers": [{"accelerator": {"resourceName": "nvidia.com/gpu"}}]}},
        "status": {
            "model": "Qwen3",
            "network": {"evidence": ["product H100: label (2 nodes)"]},
            "usage": {
                "acceleratorSeconds": 900,
                "by": {"update": 900},
                "days": [{"day": "2026-01-02", "by": {"update": 900}}],
                "observedTime": "2026-01-02T03:00:00Z",
            },
        },
    }


@pytest.mark.parametrize("manifest", [{"metadata": {}}, {"metadata": {}, "status": {"phase": "Pending"}}])
def test_a_job_that_has_held_nothing_is_not_kept(manifest: Manifest) -> None:
    assert reduce_job(manifest) is None


def test_a_job_counts_once_as_it_was_deleted() -> None:
    merged = merge_jobs([kept("1"), kept("2")], [kept("1", "2026-01-02T04:00:00Z")])
    assert [(each["metadata"]["uid"], each["status"]["usage"]["observedTime"]) for each in merged] == [
        ("2", "2026-01-02T03:00:00Z"),
        ("1", "2026-01-02T04:00:00Z"),
    ]


def test_a_record_is_read_as_it_was_written() -> None:
    jobs = [kept("1"), kept("2")]
    record = build_record("rlt-system", "a", jobs, {"metadata": {"resourceVersion": "7"}})
    assert (record["metadata"]["namespace"], record["metadata"]["name"]) == ("rlt-system", name_record("a"))
    assert record["metadata"]["resourceVersion"] == "7"
    assert parse_record(record) == jobs
    assert parse_record(None) == []
    assert "resourceVersion" not in build_record("rlt-system", "a", jobs, None)["metadata"]


def test_the_latest_jobs_are_kept() -> None:
    times = [f"2026-01-{day:02}T00:00:00Z" for day in range(1, 32)]
    many = [kept(str(number), times[number % 31]) for number in range(MAX_JOBS)]
    merged = merge_jobs(many, [kept("new", "2026-02-01T00:00:00Z")])
    assert len(merged) == MAX_JOBS
    assert merged[-1]["metadata"]["uid"] == "new"
    assert {each["metadata"]["uid"] for each in many} - {each["metadata"]["uid"] for each in merged} == {"0"}


def test_a_record_of_long_random_names_fits_a_config_map() -> None:
    """A tenant chooses the model of a job: 5,000 jobs with the longest names do not compress."""
    noise = random.Random(0)
    many = [kept(str(number), model=noise.randbytes(512).hex()) for number in range(MAX_JOBS)]
    record = build_record("rlt-system", "a", many, None)
    assert len(base64.b64decode(record["binaryData"][FIELD])) <= MAX_BYTES
    assert parse_record(record) == many[-len(parse_record(record)) :]
    assert len(parse_record(record)) > 1000


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"other": ""},
        {FIELD: base64.b64encode(b"no gzip").decode()},
        {FIELD: base64.b64encode(gzip.compress(b"[")).decode()},
        {FIELD: base64.b64encode(gzip.compress(json.dumps({"jobs": []}).encode())[:-4]).decode()},
        {FIELD: base64.b64encode(gzip.compress(b" " * (MAX_TEXT_BYTES + 1))).decode()},
    ],
)
def test_a_damaged_record_is_named(data: dict[str, str]) -> None:
    damaged = {"metadata": {"namespace": "rlt-system", "name": "rlt-usage-a"}, "binaryData": data}
    with pytest.raises(ValueError, match=r"ConfigMap rlt-system/rlt-usage-a, key jobs\.json\.gz: cannot be read"):
        parse_record(damaged)
