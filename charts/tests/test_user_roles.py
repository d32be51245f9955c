"""The permissions of users, as reported by the real API server."""

from __future__ import annotations

import pytest
from apiserver.waiting import eventually

from rlt_e2e.cluster import Cluster

pytestmark = pytest.mark.apiserver


def can(cluster: Cluster, user: str, verb: str, resource: str) -> bool:
    command = ["auth", "can-i", verb, resource, "-n", "team", f"--as={user}"]
    try:
        return cluster.kubectl(*command).strip() == "yes"
    except ValueError:
        return False


def test_users_get_permissions_through_the_roles_of_kubernetes(installed: Cluster) -> None:
    installed.kubectl("create", "namespace", "team")
    for role in ("view", "edit", "admin"):
        installed.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}", "-n", "team")
    installed.kubectl("create", "clusterrolebinding", "all", "--clusterrole=rlt-operator-runtimes-view", "--user=all")
    jobs = "rltrainingjobs.rlt.dev"
    eventually("admin has the permissions of view and edit", lambda: can(installed, "admin", "create", jobs))
    assert [can(installed, role, "get", jobs) for role in ("view", "edit", "admin")] == [True, True, True]
    assert [can(installed, role, "create", jobs) for role in ("view", "edit", "admin")] == [False, True, True]
    assert can(installed, "edit", "patch", jobs), "rlt suspend, resume and cancel"
    installed.kubectl("get", "rlruntimes", "--as=all")
    # A role in one namespace does not include cluster-scoped objects.
    with pytest.raises(ValueError, match="forbidden"):
        installed.kubectl("get", "rlruntimes", "--as=view")
