"""Kubeflow Trainer and JobSet from their Go modules, as processes of the bench.

Their webhooks are not registered: the API server calls none for a TrainJob or JobSet, which is to their advantage.
Their webhook servers get a certificate because they do not start without one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from operator_bench.environment import running
from operator_bench.processes import Process, wait_for_ok
from rlt_e2e.cluster import Cluster, certificates
from rlt_e2e.cluster.go_programs import GO_FOLDER, Family, obtain

TRAINER = "github.com/kubeflow/trainer/v2"
JOBSET = "sigs.k8s.io/jobset"

PEERS = Family(
    name="peers",
    title="Kubeflow Trainer and JobSet",
    packages=(f"{TRAINER}/cmd/trainer-controller-manager", JOBSET),
    module=GO_FOLDER / "peers",
    estimate_s=150,
    copies=(
        (TRAINER, "manifests/base/crds", "trainer-crds"),
        (TRAINER, "manifests/base/runtimes", "trainer-runtimes"),
        (JOBSET, "config/components/crd/bases", "jobset-crds"),
    ),
)

NAMESPACE = "kubeflow-system"
TRAINER_PORT = 9004
JOBSET_PORT = 9005

IN_ITS_FOLDER = 'mount --bind "$0" /tmp; exec "$@"'
"""Runs a program with a folder as its /tmp: both read certificates from /tmp/k8s-webhook-server/serving-certs."""

JOBSET_CONFIG = {
    "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
    "kind": "Configuration",
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": False},
}


def build() -> Path:
    """Build the programs and return their folder. The first build takes minutes."""
    return obtain(PEERS)


@contextmanager
def run_peers(cluster: Cluster) -> Iterator[None]:
    """Kubeflow Trainer and JobSet, with the runtime torch-distributed."""
    assert cluster.layout
    built = build()
    state = cluster.layout.state
    for crds in ("jobset-crds", "trainer-crds"):
        files = [argument for file in sorted((built / crds).glob("*.x-k8s.io_*.yaml")) for argument in ("-f", file)]
        files += [each for file in sorted((built / crds).glob("trainer*.yaml")) for each in ("-f", file)]
        cluster.kubectl("apply", "--server-side", *files)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("create", "secret", "generic", "kubeflow-trainer-webhook-cert", "-n", NAMESPACE)
    cluster.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "validator.trainer.kubeflow.org"},
        }
    )
    for name in ("trainer", "jobset"):
        _prepare_folder(state / name, cluster)
    (state / "jobset" / "config.json").write_text(json.dumps(JOBSET_CONFIG))
    program = built / "trainer-controller-manager"
    trainer = _make(cluster, "trainer", program, TRAINER_PORT, "--webhook-server-port=9444")
    jobset = _make(cluster, "jobset", built / "jobset", JOBSET_PORT, "--config=/tmp/config.json")
    with running(trainer, jobset):
        for process, port in ((trainer, TRAINER_PORT), (jobset, JOBSET_PORT)):
            wait_for_ok(process, f"http://127.0.0.1:{port}/readyz")
        cluster.kubectl("apply", "--server-side", "-f", built / "trainer-runtimes" / "torch_distributed.yaml")
        yield


def _make(cluster: Cluster, name: str, program: Path, port: int, *options: str) -> Process:
    assert cluster.layout
    command: list[str | Path] = [
        program,
        f"--health-probe-bind-address=127.0.0.1:{port}",
        "--metrics-bind-address=0",
        *options,
    ]
    folder = cluster.layout.state / name
    run: list[str | Path] = ["unshare", "--mount", "sh", "-ec", IN_ITS_FOLDER, folder, *command]
    return Process(name, run, cluster.layout, {"KUBECONFIG": "/tmp/kubeconfig"})


def _prepare_folder(folder: Path, cluster: Cluster) -> None:
    keys = folder / "k8s-webhook-server" / "serving-certs"
    keys.mkdir(parents=True)
    certificates.create_authority(keys, "ca")
    certificates.issue(keys, "tls", authority="ca", subject="/CN=webhook", names=["DNS:localhost"])
    shutil.copyfile(cluster.kubeconfig, folder / "kubeconfig")
