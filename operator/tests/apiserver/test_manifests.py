"""Manifests of users and of the operator, validated by the real API server with the real CRDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml
from apiserver.in_cluster import Kubernetes

from rlt_e2e.cluster.agent_sandbox import install_crd

pytestmark = pytest.mark.apiserver

EXAMPLES = Path(__file__).parents[3] / "examples"
GOLDEN = sorted((Path(__file__).parents[3] / "core/tests/golden").glob("*.yaml"))


HIGH = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1}


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_every_golden_manifest_is_valid(kubernetes: Kubernetes, golden: Path) -> None:
    for manifest in yaml.safe_load_all(golden.read_text()):
        if manifest["kind"] == "Sandbox":
            install_crd(kubernetes.cluster)
        manifest["metadata"]["namespace"] = "default"
        kubernetes.dry_run("default", manifest)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_every_golden_pod_is_restricted(kubernetes: Kubernetes, golden: Path) -> None:
    """The pod security level `restricted` admits the pod templates."""
    kubernetes.cluster.apply(HIGH)
    level = "pod-security.kubernetes.io/enforce"
    kubernetes.label_namespace("default", {level: "restricted"})
    found = {manifest["kind"]: manifest for manifest in yaml.safe_load_all(golden.read_text())}
    cluster = found["RayCluster"]["spec"]
    templates = [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    templates += [found["Job"]["spec"]["template"]] if "Job" in found else []
    templates += [found["Sandbox"]["spec"]["podTemplate"]] if "Sandbox" in found else []
    for template in templates:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
        kubernetes.dry_run("default", pod)
    kubernetes.label_namespace("default", {level: None})


def test_every_example_is_valid(kubernetes: Kubernetes) -> None:
    created = kubernetes.kubectl("create", "-n", "default", "--dry-run=server", "--validate=strict", "-f", EXAMPLES)
    assert created.count(" created (server dry run)") == len(list(EXAMPLES.glob("*.yaml")))


INVALID: list[tuple[dict[str, Any], str, str]] = [
    ({**o.SPEC, "modle": {}}, 'unknown field "spec.modle"', ""),
    ({**o.SPEC, "training": {"totalSteps": 0}}, "spec.training.totalSteps", "greater than or equal to 1"),
    ({**o.SPEC, "rollout": {"engine": "sglang"}}, "spec.rollout.engine", '"vllm", "transformers"'),
    ({**o.SPEC, "cluster": {"image": "i", "workers": []}}, "spec.cluster.workers", "at least 1"),
    ({**o.SPEC, "algorithm": {"clipRatio": "a lot"}}, "spec.algorithm.clipRatio", "number"),
]


@pytest.mark.parametrize(("spec", "path", "allowed"), INVALID, ids=[path for _, path, _ in INVALID])
def test_an_invalid_field_is_rejected_by_name(
    kubernetes: Kubernetes, spec: dict[str, Any], path: str, allowed: str
) -> None:
    with pytest.raises(ValueError, match="spec") as rejection:
        kubernetes.create_job("default", spec, name="invalid")
    assert path in str(rejection.value)
    assert allowed in str(rejection.value)
