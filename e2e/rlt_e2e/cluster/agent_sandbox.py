"""kubernetes-sigs/agent-sandbox for the duration of a test: the CRD of Sandboxes, and its controller as a process.

    with agent_sandbox(cluster):
        ...

Without its extensions (templates, warm pools, claims), and without the webhook that converts the deprecated v1alpha1.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlt_e2e.cluster import processes
from rlt_e2e.cluster.go_programs import GO_FOLDER, Family, obtain
from rlt_e2e.cluster.handle import Cluster
from rlt_e2e.cluster.stages import stage

MODULE = "sigs.k8s.io/agent-sandbox"

AGENT_SANDBOX = Family(
    name="agent-sandbox",
    title="agent-sandbox",
    packages=(f"{MODULE}/cmd/agent-sandbox-controller",),
    renames={"agent-sandbox-controller": "agent-sandbox"},
    estimate_s=120,
    module=GO_FOLDER / "agentsandbox",
    copies=((MODULE, "k8s/crds", "crds"),),
)

NAME = "agent-sandbox"
OPTIONS = (
    "--leader-elect=false",
    "--enable-webhook=false",
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
)


def build() -> Path:
    """Build the program and return the folder with it and its CRDs. The first build takes minutes."""
    return obtain(AGENT_SANDBOX)


def install_crd(cluster: Cluster) -> Path:
    """Install the CRD of Sandboxes alone. Returns its file."""
    crd = build() / "crds" / "agents.x-k8s.io_sandboxes.yaml"
    cluster.kubectl("apply", "--server-side", "--filename", crd)
    # The wait for a condition fails while a new CRD has none.
    for awaited in ("jsonpath={.status.acceptedNames.kind}=Sandbox", "condition=Established"):
        cluster.kubectl("wait", f"--for={awaited}", "--timeout=300s", "--filename", crd)
    return crd


@contextmanager
def agent_sandbox(cluster: Cluster) -> Iterator[None]:
    """Run agent-sandbox, and remove it afterwards with all Sandboxes."""
    layout = cluster.layout
    assert layout, "agent-sandbox needs the embedded cluster, which ends the process when it is removed"
    with stage("start agent-sandbox", estimate_s=5):
        crd = install_crd(cluster)
        processes.start(
            NAME,
            [build() / NAME, *OPTIONS],
            state=layout.state,
            log=layout.logs / f"{NAME}.log",
            search_path="/usr/bin:/bin",
            environment={"KUBECONFIG": str(layout.admin)},
        )
    try:
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=300s", "--filename", crd)
        processes.kill(each.pid for each in processes.list_running(layout.state) if each.name == NAME)
