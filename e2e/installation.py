"""Puts rlt on a cluster: the operator's image, the chart, and a namespace whose jobs share a volume."""

from __future__ import annotations

from pathlib import Path

from cluster import Cluster, images
from cluster.stages import stage
from environment import ROOT

SYSTEM_NAMESPACE = "rlt-system"
RELEASE = "rlt-operator"
OPERATOR_IMAGE = "localhost/rlt-operator"
CLAIM = "rlt-runs"


def install_operator(cluster: Cluster) -> None:
    """Build the operator's image, load it and install the chart, or bring an installed one up to date.

    A cluster named by KUBECONFIG has to hold the images already (README.md shows kind).
    """
    image_id = "unchanged"
    if cluster.layout:
        dockerfile, base = ROOT / "images/operator.Dockerfile", {"BASE": images.BASE}
        image_id = cluster.build_image(dockerfile, context=ROOT, tag=f"{OPERATOR_IMAGE}:dev", build_args=base)
    with stage("install the operator with Helm", estimate_s=15):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", ROOT / "crds")
        cluster.helm(
            *("upgrade", "--install", RELEASE, ROOT / "charts/rlt-operator", "--namespace", SYSTEM_NAMESPACE),
            *("--create-namespace", "--skip-crds", "--wait", "--timeout", "3m"),
            *("--set", f"image.repository={OPERATOR_IMAGE}", "--set", "image.tag=dev"),
            # The tag stays the same from one build to the next; the annotation makes a new image a new pod.
            *("--set-string", f"podAnnotations.rlt\\.dev/image-id={image_id}"),
        )


def make_namespace(cluster: Cluster, name: str) -> Path | None:
    """A namespace with a claim that all pods of a job can write; its folder on this machine, where there is one."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    if cluster.layout:
        return cluster.shared_volume(name, CLAIM)
    # Few clusters for trying things out offer ReadWriteMany, and on a single node no one needs it.
    mode = "ReadWriteOnce" if len(cluster.nodes()) == 1 else "ReadWriteMany"
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": name},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "10Gi"}}},
        }
    )
    return None
