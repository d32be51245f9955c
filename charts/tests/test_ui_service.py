"""The manifests of the page: rendered only if enabled, with the rights to list jobs and to ask for reviews alone."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlt_core.children.network_policy import OPERATOR_LABELS
from rlt_e2e.cluster import Cluster
from rlt_ui.__main__ import build_parser

pytestmark = pytest.mark.apiserver

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]
NAME = "rlt-operator-ui"
REVIEWS = {
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
}
JOBS = {("rlt.dev", "rltrainingjobs", "list")}


def of_page(manifests: list[Manifest]) -> list[Manifest]:
    return [each for each in manifests if each["metadata"]["name"] == NAME]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = (each for each in of_page(manifests) if each["kind"] == kind)
    return found


def rights(role: Manifest) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_page_is_rendered_only_if_enabled(render: Render) -> None:
    assert of_page(render()) == []
    enabled = render("ui.enabled=true")
    kinds = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Service", "Deployment", "NetworkPolicy"]
    assert sorted(each["kind"] for each in of_page(enabled)) == sorted(kinds)
    assert [each for each in enabled if each["metadata"]["name"] != NAME] == render()


def test_the_page_can_list_jobs_and_create_reviews_alone(render: Render) -> None:
    manifests = render("ui.enabled=true")
    assert rights(only(manifests, "ClusterRole")) == REVIEWS | JOBS
    binding = only(manifests, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == NAME
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "rlt-system"}]


def test_each_watched_namespace_has_a_role(render: Render) -> None:
    manifests = render("ui.enabled=true", "watchNamespaces={team-a,team-b}")
    assert rights(only(manifests, "ClusterRole")) == REVIEWS
    roles = [each for each in of_page(manifests) if each["kind"] == "Role"]
    assert {each["metadata"]["namespace"]: rights(each) for each in roles} == {"team-a": JOBS, "team-b": JOBS}
    bindings = [each for each in of_page(manifests) if each["kind"] == "RoleBinding"]
    assert [each["metadata"]["namespace"] for each in bindings] == ["team-a", "team-b"]
    (container,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert build_parser().parse_args(container["args"]).namespace == ["team-a", "team-b"]


def test_the_service_is_internal_and_selects_the_pod_of_the_page_alone(render: Render) -> None:
    manifests = render("ui.enabled=true")
    service = only(manifests, "Service")
    labels = only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["type"] == "ClusterIP"
    assert service["spec"]["selector"].items() <= labels.items()
    (operator,) = (
        each for each in manifests if each["kind"] == "Deployment" and each["metadata"]["name"] == "rlt-operator"
    )
    of_operator = operator["spec"]["template"]["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= of_operator.items()
    assert not operator["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert not OPERATOR_LABELS.items() <= labels.items()  # the NetworkPolicies of jobs do not admit the page


def test_the_program_has_the_arguments(render: Render) -> None:
    (container,) = only(render("ui.enabled=true", "ui.audience=rlt-ui"), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    (program,) = container["command"]
    assert shutil.which(program, path=Path(sys.executable).parent)  # the image has it beside its Python, too
    options = build_parser().parse_args(container["args"])
    (port,) = container["ports"]
    assert (options.port, options.audience, options.namespace) == (port["containerPort"], "rlt-ui", [])
    assert options.operator_namespace == "rlt-system"


def test_the_api_server_accepts_the_page_with_a_restricted_pod(installed: Cluster, render: Render) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rlt-system", "labels": labels}})
    manifests = of_page(render("ui.enabled=true"))
    installed.apply(only(manifests, "ServiceAccount"))
    template = only(manifests, "Deployment")["spec"]["template"]
    metadata = {"name": "as-a-pod", "namespace": "rlt-system"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"] | metadata, "spec": template["spec"]}
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*manifests, pod]})
    dry_run = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "--output=name", "-f", "-")
    assert len(installed.kubectl(*dry_run, input=items).split()) == len(manifests) + 1
    security = template["spec"]["containers"][0]["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
