"""runtimes.checkUse: a user needs the verb use on the RLRuntime of a job. The real API server evaluates the policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from apiserver.waiting import eventually

from rlt_e2e.cluster import Cluster

pytestmark = pytest.mark.apiserver

Render = Callable[..., list[dict[str, Any]]]


def create(cluster: Cluster, user: str, runtime: str | None, *, namespace: str = "tenant") -> str:
    """A dry run of `kubectl create` as the user. Returns its output or its error."""
    spec = {"model": {"fromSeed": {}}, "data": {"preset": "arithmetic"}}
    reference = {"runtimeRef": {"name": runtime}} if runtime else {}
    kind = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}}
    text = json.dumps({**kind, "spec": {**spec, **reference}})
    try:
        return cluster.kubectl(
            "create", "--dry-run=server", f"--as={user}", "-n", namespace, "-f", "-", "-o", "name", input=text
        )
    except ValueError as error:
        return str(error)


@pytest.fixture(scope="module")
def tenants(installed: Cluster, render: Render) -> Cluster:
    """Users jane and otto may edit jobs in two namespaces; the policy is installed."""
    for namespace in ("tenant", "tenant-with-default", "tenant-without-default"):
        installed.kubectl("create", "namespace", namespace)
        for user in ("jane", "otto"):
            installed.kubectl("create", "rolebinding", user, "--clusterrole=edit", f"--user={user}", "-n", namespace)
    installed.kubectl("label", "namespace", "tenant-with-default", "rlt.dev/default-runtime=big")
    installed.kubectl("label", "namespace", "tenant-without-default", "rlt.dev/default-runtime=")
    manifests = render("runtimes.checkUse=true", "runtimes.default=common")
    policies = (each for each in manifests if each["kind"].startswith("ValidatingAdmissionPolicy"))
    installed.apply(*(each for each in policies if each["metadata"]["name"] == "rlt-operator-runtimes-use"))
    eventually("the policy applies", lambda: "does not have the verb use" in create(installed, "jane", "big"))
    return installed


def test_a_user_without_the_verb_is_rejected(tenants: Cluster) -> None:
    message = create(tenants, "jane", "big")
    assert "spec.runtimeRef.name: big: user jane does not have the verb use on this RLRuntime" in message
    assert "ClusterRole rlt-operator-runtimes-use in namespace tenant" in message


def test_a_job_without_a_runtime_needs_no_verb(tenants: Cluster) -> None:
    assert "rltrainingjob.rlt.dev/sum" in create(tenants, "jane", None)


def test_a_role_binding_in_the_namespace_grants_the_verb_there(tenants: Cluster) -> None:
    role = "--clusterrole=rlt-operator-runtimes-use"
    tenants.kubectl("create", "rolebinding", "use", role, "--user=otto", "-n", "tenant")
    eventually("otto can use it", lambda: "rltrainingjob.rlt.dev/sum" in create(tenants, "otto", "big"))
    assert "does not have the verb use" in create(tenants, "jane", "big")
    assert "does not have the verb use" in create(tenants, "otto", "other", namespace="tenant-with-default")


def test_a_role_can_name_single_runtimes(tenants: Cluster) -> None:
    rule = {"apiGroups": ["rlt.dev"], "resources": ["rlruntimes"], "resourceNames": ["small"], "verbs": ["use"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "use-small"}}
    tenants.apply({**role, "rules": [rule]})
    tenants.kubectl("create", "clusterrolebinding", "use-small", "--clusterrole=use-small", "--user=jane")
    eventually("jane can use it", lambda: "rltrainingjob.rlt.dev/sum" in create(tenants, "jane", "small"))
    assert "does not have the verb use" in create(tenants, "jane", "big")


def test_the_default_runtime_needs_no_verb(tenants: Cluster) -> None:
    """The administrator of the namespace or the chart has selected it for its jobs."""
    assert "rltrainingjob.rlt.dev/sum" in create(tenants, "jane", "common")
    assert "rltrainingjob.rlt.dev/sum" in create(tenants, "jane", "big", namespace="tenant-with-default")
    for namespace in ("tenant-with-default", "tenant-without-default"):
        assert "does not have the verb use" in create(tenants, "jane", "common", namespace=namespace)


def test_a_role_in_a_namespace_permits_the_operator_to_read_its_labels(tenants: Cluster, render: Render) -> None:
    (role,) = (
        each
        for each in render("watchNamespaces={tenant}")
        if each["kind"] == "Role" and each["metadata"]["namespace"] == "tenant"
    )
    tenants.apply({**role, "metadata": {**role["metadata"], "name": "watched"}})
    tenants.kubectl("create", "rolebinding", "watched", "--role=watched", "--user=operator", "-n", "tenant")
    read = ("get", "namespace", "-o", "name", "--as=operator")

    def can_read() -> bool:
        try:
            return "namespace/tenant" in tenants.kubectl(*read, "tenant")
        except ValueError:
            return False

    eventually("the operator can read its namespace", can_read)
    with pytest.raises(ValueError, match="forbidden"):
        tenants.kubectl(*read, "tenant-with-default")


def test_a_runtime_cannot_be_added_later(tenants: Cluster) -> None:
    kind = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "later"}}
    spec = {"model": {"fromSeed": {}}, "data": {"preset": "arithmetic"}, "suspend": True}
    tenants.kubectl("create", "-n", "tenant", "-f", "-", input=json.dumps({**kind, "spec": spec}))
    patch = json.dumps({"spec": {"runtimeRef": {"name": "big"}}})
    with pytest.raises(ValueError, match="runtimeRef is immutable"):
        tenants.kubectl("patch", "rltrainingjob", "later", "-n", "tenant", "--as=jane", "--type=merge", "-p", patch)
    tenants.kubectl("delete", "rltrainingjob", "later", "-n", "tenant")
