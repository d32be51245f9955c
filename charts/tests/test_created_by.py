"""The annotation rlt.dev/created-by: the API server writes it, and users cannot. It evaluates the chart's policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apiserver.waiting import eventually

from rlt_core.names import CREATOR_ANNOTATION
from rlt_e2e.cluster import Cluster

pytestmark = pytest.mark.apiserver

Render = Callable[..., list[dict[str, Any]]]

NAMESPACE = "creators"
POLICY = "rlt-operator-created-by"


def manifest(name: str, **annotations: str) -> dict[str, Any]:
    spec = {"model": {"fromSeed": {}}, "data": {"preset": "arithmetic"}, "suspend": True}
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": metadata, "spec": spec}


def write(cluster: Cluster, user: str, verb: str, job: dict[str, Any], *options: str) -> dict[str, str]:
    """`kubectl VERB -f -` as the user. Returns the annotations of the job. Raises ValueError if it is rejected."""
    text = cluster.kubectl(
        verb, *options, f"--as={user}", "-n", NAMESPACE, "-o", "json", "-f", "-", input=json.dumps(job)
    )
    return dict(json.loads(text)["metadata"].get("annotations", {}))


@pytest.fixture(scope="module")
def team(installed: Cluster) -> Cluster:
    """Users jane and otto may edit jobs in a namespace."""
    installed.kubectl("create", "namespace", NAMESPACE)
    for user in ("jane", "otto"):
        installed.kubectl("create", "rolebinding", user, "--clusterrole=edit", f"--user={user}", "-n", NAMESPACE)

    def is_written(user: str) -> bool:
        try:
            return CREATOR_ANNOTATION in write(installed, user, "create", manifest("probe"), "--dry-run=server")
        except ValueError:  # the CRD is not served yet, or the role of the user has no rules for jobs yet
            return False

    eventually("the policy applies, and the users may create jobs", lambda: all(map(is_written, ("jane", "otto"))))
    return installed


def test_a_job_has_the_name_of_its_creator(team: Cluster) -> None:
    assert write(team, "jane", "create", manifest("plain"))[CREATOR_ANNOTATION] == "jane"
    annotations = write(team, "otto", "create", manifest("annotated", team="a"))
    assert (annotations[CREATOR_ANNOTATION], annotations["team"]) == ("otto", "a")


def test_the_creator_cannot_name_another_user(team: Cluster) -> None:
    assert (
        write(team, "jane", "create", manifest("forged", **{CREATOR_ANNOTATION: "otto"}))[CREATOR_ANNOTATION] == "jane"
    )


def test_no_later_write_changes_it(team: Cluster) -> None:
    write(team, "jane", "create", manifest("edited"))
    for user, changed in (("otto", {CREATOR_ANNOTATION: "otto"}), ("jane", {}), ("otto", {"team": "a"})):
        assert write(team, user, "replace", manifest("edited", **changed))[CREATOR_ANNOTATION] == "jane"


@pytest.fixture
def older(team: Cluster, render: Render) -> Iterator[Cluster]:
    """The policies that the chart has without mutating ones: `helm template` knows none, as before Kubernetes 1.36."""
    write(team, "otto", "create", manifest("older", team="a"))
    kinds = ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy")
    removed = [json.loads(team.kubectl("get", kind, POLICY, "-o", "json")) for kind in kinds]
    policies = [each for each in render() if each["metadata"]["name"] == POLICY]
    for kind in kinds:
        team.kubectl("delete", kind, POLICY)
    team.apply(*policies)
    yield team
    for each in policies:
        team.kubectl("delete", each["kind"].lower(), POLICY)
    team.apply(*({**each, "metadata": {"name": POLICY}} for each in removed))


def test_without_mutating_policies_no_user_writes_it(older: Cluster) -> None:
    def is_rejected(verb: str, job: dict[str, Any]) -> bool:
        try:
            write(older, "jane", verb, job, "--dry-run=server")
        except ValueError as error:
            return "metadata.annotations[rlt.dev/created-by]: must not be written by users" in str(error)
        return False

    edited = manifest("older", team="b", **{CREATOR_ANNOTATION: "jane"})
    eventually("the policy applies", lambda: is_rejected("replace", edited))
    assert is_rejected("create", manifest("late", **{CREATOR_ANNOTATION: "otto"}))
    assert CREATOR_ANNOTATION not in write(older, "jane", "create", manifest("late"))
    kept = manifest("older", team="b", **{CREATOR_ANNOTATION: "otto"})
    assert write(older, "jane", "replace", kept)["team"] == "b"
