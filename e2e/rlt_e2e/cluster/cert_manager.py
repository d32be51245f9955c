"""cert-manager for the duration of a test: its CRDs, and its controllers as a process (go/certmanager).

    with cert_manager(cluster):
        ...

It supports self-signed issuers and CA issuers, and injects their CAs into ValidatingWebhookConfigurations.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlt_e2e.cluster import processes
from rlt_e2e.cluster.go_programs import Family, obtain
from rlt_e2e.cluster.handle import Cluster
from rlt_e2e.cluster.stages import stage

MODULE = "github.com/cert-manager/cert-manager"

CERT_MANAGER = Family(
    name="cert-manager",
    title="cert-manager",
    packages=("rlt.dev/cluster-programs/certmanager",),
    renames={"certmanager": "cert-manager"},
    estimate_s=30,
    stamps=lambda modules: {f"{MODULE}/pkg/util.AppVersion": modules[MODULE]},
    copies=((MODULE, "deploy/crds", "crds"),),
)

NAME = "cert-manager"


def build() -> Path:
    """Build the program and return the folder with it and its CRDs.

    The first build takes about a minute if the cluster's programs are built.
    """
    return obtain(CERT_MANAGER)


@contextmanager
def cert_manager(cluster: Cluster) -> Iterator[None]:
    """Run cert-manager, and remove it afterwards with all Issuers and Certificates. The Secrets stay."""
    layout = cluster.layout
    assert layout, "cert-manager needs the embedded cluster, which ends the process when it is removed"
    built = build()
    try:
        with stage("start cert-manager", estimate_s=5):
            cluster.kubectl("apply", "--server-side", "--filename", built / "crds")
            cluster.kubectl("wait", "--for=condition=Established", "--timeout=300s", "--filename", built / "crds")
            processes.start(
                NAME,
                [built / NAME],
                state=layout.state,
                log=layout.logs / f"{NAME}.log",
                search_path="/usr/bin:/bin",
                environment={"KUBECONFIG": str(layout.admin)},
            )
        yield
    finally:
        processes.kill(each.pid for each in processes.list_running(layout.state) if each.name == NAME)
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=300s", "--filename", built / "crds")
