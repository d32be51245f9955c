"""cert-manager beside an API server, for as long as a test asks for it: its CRDs, and its controllers as a process.

    with cert_manager(cluster):
        ...

It knows self-signed issuers and authorities, and writes these into ValidatingWebhookConfigurations (go/certmanager).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import processes
from cluster.go_programs import Family, obtain
from cluster.handle import Cluster
from cluster.stages import stage

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
    """The folder with the program and its CRDs; a minute at the first time, where the cluster's programs were built."""
    return obtain(CERT_MANAGER)


@contextmanager
def cert_manager(cluster: Cluster) -> Iterator[None]:
    """Its process runs; afterwards nothing of it is left, nor any Issuer or Certificate. The Secrets stay."""
    layout = cluster.layout
    assert layout, "only the embedded cluster's own processes are known to end with it"
    built = build()
    try:
        with stage("start cert-manager", estimate_s=5):
            cluster.kubectl("apply", "--server-side", "--filename", built / "crds")
            cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "--filename", built / "crds")
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
        processes.kill(each.pid for each in processes.running(layout.state) if each.name == NAME)
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=60s", "--filename", built / "crds")
