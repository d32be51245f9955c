"""Kueue on the embedded cluster, for as long as a test asks for it: its own chart, with an image built here.

    with kueue(cluster):
        manage(cluster, "team-a")

In the namespaces that it manages it looks at RayClusters that name a queue; elsewhere none of its webhooks is called.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import images
from cluster.go_programs import Family, obtain
from cluster.handle import Cluster
from cluster.stages import stage

MODULE = "sigs.k8s.io/kueue"

KUEUE = Family(
    name="kueue",
    title="Kueue",
    packages=(f"{MODULE}/cmd/kueue",),
    estimate_s=60,
    stamps=lambda modules: {f"{MODULE}/pkg/version.GitVersion": modules[MODULE]},
    copies=((MODULE, "charts/kueue", "chart"),),
)

IMAGE = "localhost/kueue:pinned"
NAMESPACE = "kueue-system"
RELEASE = "kueue"
DEPLOYMENT = f"{RELEASE}-controller-manager"
MANAGED = ("rlt.dev/queues", "kueue")
"""The label of the namespaces that it manages."""
ITS_OBJECTS = tuple(
    f"{kind}.kueue.x-k8s.io" for kind in ("workloads", "localqueues", "clusterqueues", "resourceflavors")
)


def build() -> Path:
    """The folder with the program and its chart; minutes at the first time."""
    return obtain(KUEUE)


@contextmanager
def kueue(cluster: Cluster) -> Iterator[None]:
    """Kueue up and answering its webhooks; afterwards nothing of it is left, nor of its queues and flavors."""
    built = build()
    cluster.build_image(images.DOCKERFILES / "kueue.Dockerfile", context=built, tag=IMAGE)
    try:
        _install(cluster, built)
        yield
    finally:
        _remove(cluster)


def manage(cluster: Cluster, namespace: str) -> None:
    """Let Kueue manage the jobs of an existing namespace."""
    cluster.kubectl("label", "--overwrite", "namespace", namespace, "=".join(MANAGED))


def values() -> dict[str, object]:
    """For its chart: one replica that asks for little and is ready as soon as it is."""
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
    # Its visibility API is left out: an aggregated API that does not answer keeps every namespace from being deleted.
    shutil.copytree(built / "chart", folder / "chart", ignore=shutil.ignore_patterns("visibility"))
    (folder / "values.json").write_text(json.dumps(values()))
    with stage("install Kueue", estimate_s=30) as this:
        cluster.helm(
            *("upgrade", "--install", RELEASE, folder / "chart", "--values", folder / "values.json"),
            *("--namespace", NAMESPACE, "--create-namespace"),
        )
        this.note("its certificates")
        made = r"--for=jsonpath={.data.tls\.crt}"
        cluster.kubectl("-n", NAMESPACE, "wait", made, f"secret/{RELEASE}-webhook-server-cert", "--timeout=120s")
        # Its first pod has made them, and looks for them, mounted, more and more seldom: a second one finds them there.
        cluster.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--now")
        this.note("its webhooks")
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{DEPLOYMENT}", "--timeout=120s")


def _remove(cluster: Cluster) -> None:
    with stage("take Kueue away", estimate_s=15):
        # While it runs: it alone takes its finalizers off them, and converts them between versions of its API.
        there = cluster.kubectl("get", "crds", "--output", "name")
        for kind in ITS_OBJECTS:
            if kind in there:
                cluster.kubectl("delete", kind, "--all", "--all-namespaces", "--timeout=60s")
        cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found", "--wait", "--timeout", "2m")
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
