"""Install rlt on a cluster: the operator's image, the chart, and a namespace whose jobs share a volume."""

from __future__ import annotations

from pathlib import Path

from rlt_e2e.cluster import Cluster, images
from rlt_e2e.cluster.stages import stage
from rlt_e2e.environment import ROOT

SYSTEM_NAMESPACE = "rlt-system"
RELEASE = "rlt-operator"
OPERATOR_IMAGE = "localhost/rlt-operator"
CLAIM = "rlt-runs"


def install_operator(cluster: Cluster) -> None:
    """Build the operator's image, load it, and install or upgrade the chart.

    The cluster of KUBECONFIG must already have the images (docs/getting-started.md shows the commands for kind).
    """
    image_id = "unchanged"
    if cluster.layout:
        dockerfile = ROOT / "images/operator.Dockerfile"
        base = {"BASE": images.BASE}
        image_id = cluster.build_image(dockerfile, context=ROOT, tag=f"{OPERATOR_IMAGE}:dev", build_args=base)
    with stage("install the operator with Helm", estimate_s=15):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", ROOT / "crds")
        cluster.helm(
            *("upgrade", "--install", RELEASE, ROOT / "charts/rlt-operator", "--namespace", SYSTEM_NAMESPACE),
            *("--create-namespace", "--skip-crds", "--wait", "--timeout", "3m"),
            *("--set", f"image.repository={OPERATOR_IMAGE}", "--set", "image.tag=dev"),
            *("--set", "ui.enabled=true"),
            # The tests' Prometheus, and the API server's proxy, send no token.
            *("--set", "metrics.authentication=false"),
            # The tag does not change between builds. The annotation replaces the pod when the image changes.
            *("--set-string", f"podAnnotations.rlt\\.dev/image-id={image_id}"),
        )


def create_namespace(cluster: Cluster, name: str) -> Path | None:
    """Create a namespace with a PVC that all pods of a job can write.

    Returns the folder of the volume on this machine, None in the cluster of KUBECONFIG.
    """
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    if cluster.layout:
        return cluster.shared_volume(name, CLAIM)
    # Few development clusters support ReadWriteMany, and a single node does not need it.
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
