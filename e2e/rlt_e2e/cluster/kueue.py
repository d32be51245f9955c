"""Kueue on the embedded cluster for the duration of a test: its own chart, with an image built on this machine.

    with kueue(cluster):
        manage_namespace(cluster, "team-a")

It manages RayClusters with a queue name in labeled namespaces. In other namespaces none of its webhooks is called.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlt_e2e.cluster import images
from rlt_e2e.cluster.go_programs import GO_FOLDER, Family, obtain
from rlt_e2e.cluster.handle import Cluster
from rlt_e2e.cluster.stages import stage

MODULE = "sigs.k8s.io/kueue"

KUEUE = Family(
    name="kueue",
    title="Kueue",
    packages=(f"{MODULE}/cmd/kueue",),
    estimate_s=300,
    module=GO_FOLDER / "kueue",
    stamps=lambda modules: {f"{MODULE}/pkg/version.GitVersion": modules[MODULE]},
    copies=((MODULE, "charts/kueue", "chart"),),
)

IMAGE = "localhost/kueue:pinned"
NAMESPACE = "kueue-system"
RELEASE = "kueue"
DEPLOYMENT = f"{RELEASE}-controller-manager"
MANAGED = ("rlt.dev/queues", "kueue")
"""Label of the namespaces that Kueue manages."""
KUEUE_RESOURCES = tuple(
    f"{kind}.kueue.x-k8s.io" for kind in ("workloads", "localqueues", "clusterqueues", "resourceflavors")
)


def build() -> Path:
    """Build the program and return the folder with it and its chart. The first build takes minutes."""
    return obtain(KUEUE)


@contextmanager
def kueue(cluster: Cluster) -> Iterator[None]:
    """Install Kueue and wait for its webhooks. Afterwards remove it with all queues and flavors."""
    built = build()
    cluster.build_image(images.DOCKERFILES / "kueue.Dockerfile", context=built, tag=IMAGE)
    try:
        _install(cluster, built)
        yield
    finally:
        _remove(cluster)


def manage_namespace(cluster: Cluster, namespace: str) -> None:
    """Label an existing namespace, so that Kueue manages its jobs."""
    cluster.kubectl("label", "--overwrite", "namespace", namespace, "=".join(MANAGED))


def build_values() -> dict[str, object]:
    """Build the values of its chart: one replica with small requests and a short delay of the readiness probe."""
    repository, tag = IMAGE.rsplit(":", 1)
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": ["ray.io/raycluster"]},
        "managedJobsNamespaceSelector": {"matchLabels": dict([MANAGED])},
    }
    manager = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    return {
        "controllerManager": {
            "replicas": 1,
            "manager": manager,
            "readinessProbe": {"initialDelaySeconds": 1},
            "featureGates": [{"name": "VisibilityOnDemand", "enabled": False}],
        },
        "managerConfig": {"controllerManagerConfigYaml": json.dumps(configuration)},
    }


def _install(cluster: Cluster, built: Path) -> None:
    assert cluster.layout
    folder = cluster.layout.state / "kueue"
    shutil.rmtree(folder, ignore_errors=True)
    # Without its visibility API: an unavailable aggregated API blocks the deletion of every namespace.
    shutil.copytree(built / "chart", folder / "chart", ignore=shutil.ignore_patterns("visibility"))
    (folder / "values.json").write_text(json.dumps(build_values()))
    with stage("install Kueue", estimate_s=30) as this:
        cluster.helm(
            *("upgrade", "--install", RELEASE, folder / "chart", "--values", folder / "values.json"),
            *("--namespace", NAMESPACE, "--create-namespace"),
        )
        this.note("waiting for its certificates")
        issued = r"--for=jsonpath={.data.tls\.crt}"
        cluster.kubectl("-n", NAMESPACE, "wait", issued, f"secret/{RELEASE}-webhook-server-cert", "--timeout=300s")
        # The first pod issues them and polls for their mount with an increasing delay. A second pod starts with them.
        cluster.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--now")
        this.note("waiting for its webhooks")
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{DEPLOYMENT}", "--timeout=300s")


def _remove(cluster: Cluster) -> None:
    with stage("uninstall Kueue", estimate_s=15):
        # Delete its objects while it runs: it removes their finalizers, and converts between versions of its API.
        crds = cluster.kubectl("get", "crds", "--output", "name")
        for kind in KUEUE_RESOURCES:
            if kind in crds:
                cluster.kubectl("delete", kind, "--all", "--all-namespaces", "--timeout=300s")
        cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found", "--wait", "--timeout", "2m")
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=300s")
