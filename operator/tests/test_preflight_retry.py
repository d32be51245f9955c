"""Passed checks are remembered per node and image, so that a retry is not checked again."""

from __future__ import annotations

from dataclasses import replace

import observed as o
import pytest
from checked import BAD, GOOD, PODS, READY
from planned import condition_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import find_condition
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import plan


def on_nodes(seen: Observed, *nodes: str, image: str = "sha256:aa") -> Observed:
    pods = tuple(replace(pod, node=node, images=(image,)) for pod, node in zip(seen.pods, nodes, strict=True))
    return replace(seen, pods=pods)


def retry(seen: Observed, *nodes: str, image: str = "sha256:aa") -> Observed:
    """The next attempt on these nodes, from the status after `seen`."""
    other = "00000000-0000-0000-0000-000000000000"
    started = o.after(replace(o.after(o.after(seen)), ray=o.running()))
    moved = tuple(replace(pod, cluster_uid=other) for pod in PODS)
    recreated = replace(started, cluster=o.cluster(uid=other), pods=moved, ray=Ray())
    return replace(o.after(on_nodes(recreated, *nodes, image=image)), ray=Ray())


def test_a_retry_on_the_same_nodes_is_not_checked_again() -> None:
    again = retry(on_nodes(GOOD, "n1", "n1", "n2"), "n1", "n2", "n1")
    decided = plan(again, o.NOW)
    assert decided.submit
    assert decided.submit.id == "sum-00000000"
    status = again.job.status
    passed = find_condition(status, C.PREFLIGHT_PASSED)
    assert passed
    assert (passed.status, passed.reason) == ("True", Reason.CHECKED)
    assert "in an earlier attempt" in passed.message
    assert [check.name for check in status.preflight] == ["all-reduce", "clocks"]


@pytest.mark.parametrize(("nodes", "image"), [(("n1", "n1", "n3"), "sha256:aa"), (("n1", "n1", "n2"), "sha256:bb")])
def test_a_retry_on_another_node_or_with_another_image_is_checked(nodes: tuple[str, ...], image: str) -> None:
    submission = plan(retry(on_nodes(GOOD, "n1", "n1", "n2"), *nodes, image=image), o.NOW).submit
    assert submission
    assert submission.id == "sum-00000000-preflight"


def test_a_failed_preflight_is_not_remembered() -> None:
    passed = o.after(on_nodes(GOOD, "n1", "n1", "n2")).job.status
    assert passed.preflight_passed
    assert (passed.preflight_passed.nodes, passed.preflight_passed.images) == (["n1", "n2"], ["sha256:aa"])
    failed = o.after(replace(on_nodes(BAD, "n1", "n1", "n2"), job=replace(BAD.job, status=passed)))
    assert failed.job.status.preflight_passed is None


def test_nodes_without_a_known_image_are_not_remembered() -> None:
    assert o.after(GOOD).job.status.preflight_passed is None


def test_a_job_of_checks_alone_succeeds_without_its_program() -> None:
    spec = {**o.SPEC, "preflight": {"only": True}}
    seen = replace(on_nodes(GOOD, "n1", "n1", "n2"), job=replace(o.job(spec), status=READY.job.status))
    decided = plan(o.after(seen), o.NOW)
    assert decided.submit is None
    assert condition_of(decided, C.SUCCEEDED)[:2] == ("True", Reason.CHECKED)
    assert decided.status
    assert decided.status.phase == Phase.SUCCEEDED
    ended = plan(o.after(o.after(seen)), o.NOW)
    assert ended.delete_cluster == o.CLUSTER_UID
