"""The condition Published and status.published: unknown until the end of the job, then final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import observed as o
import pytest
from planned import condition_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_operator.conditions import find_condition
from rlt_operator.observation import Ray
from rlt_operator.reconcile.plan import plan
from rlt_pod.report.driver_report import PROGRESS_PREFIX

SPEC = {**o.SPEC, "publish": [{"hub": "lab/math"}, {"bucket": "s3://models/math"}]}
JOB = o.after(replace(o.RUNNING, job=replace(o.job(SPEC), status=o.READY.job.status)))
HUB = {"url": "https://huggingface.co/lab/math", "revision": "c0ffee"}
BUCKET = {"url": "s3://models/math", "revision": "abc"}
FAILED = {"url": "s3://models/math", "error": "no right to write. The model in /mnt/rlt/runs/a/export is unchanged"}


def finished(published: Sequence[dict[str, str]]) -> Ray:
    """The Ray job has succeeded. Its log has the last report."""
    report = o.report(200, stage="finished", published=published)
    line = report.model_dump_json(by_alias=True, exclude_none=True)
    return o.ended("SUCCEEDED", f"{PROGRESS_PREFIX}{line}\n")


def test_a_running_job_has_not_published_yet() -> None:
    found = find_condition(JOB.job.status, C.PUBLISHED)
    assert found
    assert (found.status, found.reason) == ("Unknown", Reason.PUBLICATION_PENDING)
    assert find_condition(o.STARTED.job.status, C.PUBLISHED) is None, "a job without publish has no condition"


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        (
            [HUB, BUCKET],
            ("True", Reason.MODEL_PUBLISHED, "https://huggingface.co/lab/math@c0ffee; s3://models/math@abc"),
        ),
        ([HUB, FAILED], ("False", Reason.PUBLICATION_FAILED, f"s3://models/math: {FAILED['error']}")),
        ([HUB], ("False", Reason.PUBLICATION_FAILED, "https://huggingface.co/lab/math@c0ffee")),
        ([], ("False", Reason.NOT_PUBLISHED, "The model is not promoted: a suite does not pass its promoteIf.")),
    ],
    ids=["all", "one", "incomplete", "not-promoted"],
)
def test_a_failed_publication_does_not_fail_the_job(
    published: list[dict[str, str]], expected: tuple[str, str, str]
) -> None:
    decided = plan(replace(JOB, ray=finished(published)), o.NOW)
    assert condition_of(decided, C.SUCCEEDED)[0] == "True"
    assert condition_of(decided, C.PUBLISHED) == expected
    assert decided.status
    without_errors = [{name: value for name, value in each.items() if name != "error"} for each in published]
    assert [each.to_json() for each in decided.status.published] == without_errors


def test_the_result_outlives_the_cluster_and_the_operator() -> None:
    ended = o.after(replace(JOB, ray=finished([HUB, BUCKET])))
    before = find_condition(ended.job.status, C.PUBLISHED)
    assert before
    released = o.after(replace(ended, ray=None, cluster=None, pods=()))
    assert find_condition(released.job.status, C.PUBLISHED) == before
    assert len(released.job.status.published) == 2
    assert plan(released, o.NOW).events == ()


def test_a_failed_publication_has_a_warning() -> None:
    events = plan(replace(JOB, ray=finished([HUB, FAILED])), o.NOW).events
    (event,) = [event for event in events if "s3://models/math" in event.message]
    assert (event.type, event.reason) == ("Warning", Reason.PUBLICATION_FAILED)


def test_a_failed_job_has_published_nothing() -> None:
    observed = replace(JOB, ray=o.ended("FAILED", "boom"))
    decided = plan(observed, o.NOW)
    assert condition_of(decided, C.FAILED)[0] == "True"
    assert condition_of(decided, C.PUBLISHED)[:2] == ("False", Reason.NOT_PUBLISHED)


def test_a_report_after_the_publication_of_an_undisturbed_run_is_kept() -> None:
    """The trainer publishes before it ends: the status of the running job has the places already."""
    observed: Any = replace(
        JOB, ray=replace(o.running(200), progress=o.report(200, stage="exporting", published=[HUB]))
    )
    assert [each.url for each in o.after(observed).job.status.published] == [HUB["url"]]


def test_a_secret_in_an_error_is_masked() -> None:
    cluster = {**o.SPEC["cluster"], "env": [{"name": "API_KEY", "value": "sk-0123456789abcdef"}]}
    job = replace(o.job({**SPEC, "cluster": cluster}), status=o.READY.job.status)
    failed = {**FAILED, "error": "rejected sk-0123456789abcdef"}
    decided = plan(replace(o.RUNNING, job=job, ray=finished([HUB, failed])), o.NOW)
    assert decided.status
    assert "0123456789abcdef" not in str(decided.status)
    assert "rejected" in condition_of(decided, C.PUBLISHED)[2]
