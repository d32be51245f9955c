"""`rlt doctor` on an API server with nodes of 12 kinds, as administrator and with the rights that the page names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes
from doctor.node_kinds import NODE_KINDS

pytestmark = pytest.mark.apiserver

PAGE = Path(__file__).parents[3] / "docs/doctor.md"


@pytest.fixture(scope="module")
def nodes(kubernetes: Kubernetes) -> Iterator[list[str]]:
    """Two nodes of each kind, without kubelets."""
    names = []
    for kind, pool in NODE_KINDS.items():
        for index, manifest in enumerate(pool):
            name = f"{kind}-{index}"
            labels = {**manifest["metadata"]["labels"], "kubernetes.io/hostname": name}
            kubernetes.create("", {**manifest, "metadata": {"name": name, "labels": labels}, "status": {}})
            kubernetes.patch("", "node", name, {"status": manifest["status"]}, status=True)
            names.append(name)
    yield names
    kubernetes.kubectl("delete", "node", *names)


def run_as(kubernetes: Kubernetes, namespace: str, tmp_path: Path) -> Rlt:
    """`rlt` with the token of a new service account."""
    kubernetes.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    token = kubernetes.kubectl("create", "token", "reader", "-n", namespace).strip()
    config = yaml.safe_load(kubernetes.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "reader.yaml").write_text(yaml.safe_dump(config))
    return Rlt(tmp_path / "reader.yaml", namespace)


def test_nodes_of_all_kinds_are_described(rlt: Rlt, nodes: list[str]) -> None:
    lines = json.loads(rlt("doctor", "-o", "json", expected=1).stdout)
    found = {topic: [line["message"] for line in lines if line["topic"] == topic] for topic in ("driver", "fabric")}
    assert any("550.127.05" in message for message in found["driver"])
    for fabric in ("infiniband", "roce", "efa", "tcpxo"):
        assert any(message.startswith(fabric) for message in found["fabric"]), fabric
    missing = [line for line in lines if line["topic"] == "device plugin"]
    assert [line["state"] for line in missing] == ["warning"]
    assert "dra-alone-0, dra-alone-1" in missing[0]["message"]
    assert [line["state"] for line in lines if line["topic"] == "rltrainingjobs"] == ["ok"]
    assert [line["state"] for line in lines if line["topic"] == "operator"] == ["error"]  # it runs outside of this one
    table = rlt("doctor", expected=1).stdout
    *rows, _, counts = table.splitlines()[1:]
    assert len(rows) == sum(map(int, re.findall(r"\d+", counts)))


def test_the_rights_of_the_page_suffice(
    kubernetes: Kubernetes, namespace: str, nodes: list[str], rlt: Rlt, tmp_path: Path
) -> None:
    limited = run_as(kubernetes, namespace, tmp_path)
    lines = json.loads(limited("doctor", "-o", "json").stdout)
    forbidden = [line for line in lines if "lacks the right" in line["message"]]
    assert {line["state"] for line in forbidden} == {"unknown"}
    assert {"nodes", "operator", "webhook", "volumes", "quota"} <= {line["topic"] for line in forbidden}
    role = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    kubernetes.kubectl("create", "-f", "-", input=role)
    user = f"--serviceaccount={namespace}:reader"
    kubernetes.kubectl("create", "clusterrolebinding", namespace, "--clusterrole=rlt-doctor", user)
    try:
        assert limited("doctor", "-o", "yaml", expected=1).stdout == rlt("doctor", "-o", "yaml", expected=1).stdout
    finally:
        kubernetes.kubectl("delete", "clusterrolebinding", namespace)
        kubernetes.kubectl("delete", "clusterrole", "rlt-doctor")
