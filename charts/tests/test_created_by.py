"""The annotation rlt.dev/created-by: the API server writes it, and users cannot. It evaluates the chart's policies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from apiserver.waiting import eventually

from rlt_core.names import CREATOR_ANNOTATION
from rlt_e2e.cluster import Cluster

pytestmark = pytest.mark.apiserver

Render = Callable[..., list[dict[str, Any]]]


def manifest(name: str, **annotations: str) -> dict[str, Any]:
    spec = {"model": {"fromSeed": {}}, "data": {"preset": "arithmetic"}, "suspend": True}
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": metadata, "spec": spec}


def write(cluster: Cluster, user: str, verb: str, job: dict[str, Any]) -> dict[str, str]:
    """`kubectl VERB -f -` as the user. Returns the annotations of the job. Raises ValueError if it is rejected."""
    text = cluster.kubectl(verb, f"--as={user}", "-n", "team", "-o", "json", "-f", "-", input=json.dumps(job))
    return dict(json.loads(text)["metadata"].get("annotations", {}))


@pytest.fixture(scope="module")
def team(installed: Cluster) -> Cluster:
    """Users jane and otto may edit jobs in a namespace."""
    installed.kubectl("create", "namespace", "team")
    for user in ("jane", "otto"):
        installed.kubectl("create", "rolebinding", user, "--clusterrole=edit", f"--user={user}", "-n", "team")

    def is_written() -> bool:
        job = json.dumps(manifest("probe"))
        text = installed.kubectl("create", "--dry-run=server", "-n", "team", "-o", "json", "-f", "-", input=job)
        return CREATOR_ANNOTATION in text

    eventually("the policy applies", is_written)
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


def test_without_mutating_policies_no_user_writes_it(team: Cluster, render: Render) -> None:
    """`helm template` knows no mutating policies, as an API server before Kubernetes 1.36."""
    policies = [each for each in render() if each["metadata"]["name"] == "rlt-operator-created-by"]
    assert [each["kind"] for each in policies] == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    write(team, "jane", "create", manifest("older"))
    for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
        team.kubectl("delete", kind, "rlt-operator-created-by")
    team.apply(*policies)

    def is_rejected(verb: str, job: dict[str, Any]) -> bool:
        try:
            write(team, "jane", verb, job)
        except ValueError as error:
            return "metadata.annotations[rlt.dev/created-by]: must not be written by users" in str(error)
        return False

    forged = {CREATOR_ANNOTATION: "otto"}
    eventually("the policy applies", lambda: is_rejected("replace", manifest("older", **forged)))
    assert is_rejected("create", manifest("late", **forged))
    assert CREATOR_ANNOTATION not in write(team, "jane", "create", manifest("late"))
    assert write(team, "jane", "replace", manifest("older", team="a", **{CREATOR_ANNOTATION: "jane"}))["team"] == "a"
