"""The page of a cluster (`python -m rlt_ui`) with the rights that the chart grants, attacked with tokens.

- no token, an invalid one, and one for another audience: status 401;
- a service account without rights sees nothing, and one with rights in a namespace sees the jobs of this namespace;
- a revoked right and a deleted account end, also in a page that is open;
- the account of the page can read jobs alone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import observed as o
import pytest
import yaml
from apiserver.in_cluster import Kubernetes
from apiserver.waiting import eventually

from rlt_e2e.ports import free_port

pytestmark = pytest.mark.apiserver

CHART = Path(__file__).parents[3] / "charts/rlt-operator"
ACCOUNT = "rlt-operator-ui"
PATHS = ("/", "/api/runs", "/api/run?run=default/sum", "/api/events", "/static/app.js", "/s/abc/", "/login")


@dataclass(frozen=True)
class Visitor:
    """A service account with a role in a namespace, and its token."""

    kubernetes: Kubernetes
    namespace: str
    name: str

    def create_token(self, *options: str) -> str:
        return self.kubernetes.kubectl("create", "token", self.name, "-n", self.namespace, *options).strip()

    def may_read_jobs_of(self, namespace: str) -> None:
        account = f"--serviceaccount={self.namespace}:{self.name}"
        role = ("--verb=get,list", "--resource=rltrainingjobs.rlt.dev", "-n", namespace)
        self.kubernetes.kubectl("create", "role", self.name, *role)
        self.kubernetes.kubectl("create", "rolebinding", self.name, f"--role={self.name}", account, "-n", namespace)


@pytest.fixture(scope="module")
def page(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The page, with the service account of the chart. A client of it without a token."""
    release = ("template", "rlt-operator", CHART, "--namespace", "default", "--set", "ui.enabled=true")
    manifests = yaml.safe_load_all(kubernetes.cluster.helm(*release, "--show-only", "templates/ui.yaml"))
    rights = [each for each in manifests if each["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")]
    kubernetes.cluster.apply(*rights)
    config = yaml.safe_load(kubernetes.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": Visitor(kubernetes, "default", ACCOUNT).create_token()}
    kubeconfig = tmp_path_factory.mktemp("page") / "kubeconfig"
    port = free_port()
    kubeconfig.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "rlt_ui", "--port", str(port)]
    with (
        subprocess.Popen(command, env={**os.environ, "KUBECONFIG": str(kubeconfig)}) as running,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client,
    ):
        try:
            eventually("the page has a port", lambda: is_open(port) or running.poll() is not None)
            yield client
        finally:
            running.terminate()
    for each in rights:
        kubernetes.kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def other(kubernetes: Kubernetes, namespace: str) -> Iterator[str]:
    """Another namespace. Both have a job `sum`."""
    name = f"{namespace}-b"
    kubernetes.kubectl("create", "namespace", name)
    for each in (namespace, name):
        kubernetes.create_job(each, o.SPEC)
    yield name
    kubernetes.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def visitor(kubernetes: Kubernetes, namespace: str) -> Visitor:
    """A service account without rights."""
    kubernetes.kubectl("create", "serviceaccount", "visitor", "-n", namespace)
    return Visitor(kubernetes, namespace, "visitor")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def list_ids(page: httpx.Client, token: str) -> list[str]:
    response = page.get("/api/runs", headers=bearer(token))
    assert response.status_code == 200, response.text
    return [run["id"] for run in response.json()["runs"]]


def read_status(page: httpx.Client, token: str, run: str) -> int:
    return page.get("/api/run", params={"run": run}, headers=bearer(token)).status_code


def test_a_request_without_a_valid_token_gets_status_401(page: httpx.Client, visitor: Visitor) -> None:
    valid = visitor.create_token()
    invalid = ["invalid", valid[:-4] + "AAAA", visitor.create_token("--audience=another-program")]
    for headers in ({}, *map(bearer, invalid)):
        for path in PATHS:
            response = page.get(path, headers=headers)
            assert response.status_code == 401
            assert "sum" not in response.text

    def read() -> httpx.Response:
        return page.get("/api/runs", headers=bearer(valid))

    # At first the API server answers that the storage of a new CRD is initializing.
    eventually("the token is valid", lambda: read().status_code == 200, describe=lambda: read().text)


def test_an_account_without_rights_sees_nothing(
    page: httpx.Client, visitor: Visitor, namespace: str, other: str
) -> None:
    token = visitor.create_token()
    assert list_ids(page, token) == []
    assert [read_status(page, token, f"{each}/sum") for each in (namespace, other)] == [404, 404]


def test_an_account_sees_the_jobs_of_its_namespace_alone(
    page: httpx.Client, visitor: Visitor, namespace: str, other: str
) -> None:
    visitor.may_read_jobs_of(namespace)
    token = visitor.create_token()
    eventually("the job is in the list", lambda: list_ids(page, token) == [f"{namespace}/sum"])
    for name in ("run", "metrics", "rollouts", "spans", "report"):
        for run, expected in ((f"{namespace}/sum", 200), (f"{other}/sum", 404), (f"{other}/missing", 404)):
            response = page.get(f"/api/{name}", params={"run": run, "step": "1"}, headers=bearer(token))
            assert response.status_code == expected, response.text
    described = page.get("/api/run", params={"run": f"{namespace}/sum"}, headers=bearer(token)).json()
    assert 'cannot list resource "pods"' in described["notes"][0]  # the visitor's right, not the page's
    assert f"system:serviceaccount:{namespace}:visitor" in described["notes"][0]


def test_the_cookie_of_a_login_is_valid_below_its_path_alone(
    page: httpx.Client, visitor: Visitor, namespace: str, other: str
) -> None:
    visitor.may_read_jobs_of(namespace)
    token = visitor.create_token()
    opened = page.post("/login", data={"token": token}, headers={"origin": str(page.base_url)})
    path = opened.headers["location"]
    try:
        eventually(
            "the job is in the list",
            lambda: [run["id"] for run in page.get(f"{path}api/runs").json()["runs"]] == [f"{namespace}/sum"],
        )
        assert page.get("/api/runs").status_code == 401
    finally:
        page.cookies.clear()


def test_a_revoked_right_and_a_deleted_account_end(
    page: httpx.Client, kubernetes: Kubernetes, visitor: Visitor, namespace: str, other: str
) -> None:
    visitor.may_read_jobs_of(namespace)
    token = visitor.create_token()
    eventually("the job is in the list", lambda: list_ids(page, token) == [f"{namespace}/sum"])
    kubernetes.kubectl("delete", "rolebinding", visitor.name, "-n", namespace)
    eventually("the list is empty", lambda: list_ids(page, token) == [])
    eventually("the job is not found", lambda: read_status(page, token, f"{namespace}/sum") == 404)
    with page.stream("GET", "/api/events", headers=bearer(token)) as events:
        lines = events.iter_lines()
        assert next(lines) == "event: version"
        kubernetes.kubectl("delete", "serviceaccount", visitor.name, "-n", namespace)
        assert any(line == "event: failure" for line in lines)
    eventually("status 401", lambda: page.get("/api/runs", headers=bearer(token)).status_code == 401)


def test_the_account_of_the_page_lists_jobs_and_creates_reviews_alone(
    page: httpx.Client, kubernetes: Kubernetes
) -> None:
    def can(verb: str, group: str, resource: str) -> bool:
        resource, _, part = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": part, "namespace": "default"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": f"system:serviceaccount:default:{ACCOUNT}", "resourceAttributes": attributes},
        }
        created = kubernetes.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed}", input=json.dumps(review))
        return created == "true"

    assert can("list", "rlt.dev", "rltrainingjobs")
    for verb in ("get", "watch", "create", "patch", "delete"):
        assert not can(verb, "rlt.dev", "rltrainingjobs")
    for verb, resource in (
        ("list", "pods"),
        ("create", "pods/exec"),
        ("get", "pods/log"),
        ("get", "services/proxy"),
        ("get", "secrets"),
        ("list", "configmaps"),
        ("impersonate", "users"),
        ("create", "serviceaccounts/token"),
    ):
        assert not can(verb, "", resource), (verb, resource)
