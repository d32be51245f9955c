"""The programs of a cluster: programs built from Go modules, and Debian packages.

containerd and runc of the machine are used if they are installed. Otherwise Debian's packages are unpacked into the
cache and not installed: no service starts, and Docker's own packages of them are not replaced.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlt_e2e.cluster import go_programs
from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import StageError, cache_folder, stage

INSTALLED = {
    "buildah": "buildah",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "nsenter": "util-linux",
    "openssl": "openssl",
}
"""Program -> Debian package to install if the program is missing. None of them starts a service."""

RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")


def _stamps(modules: Mapping[str, str]) -> dict[str, str]:
    """Return the version variables. Without them Helm assumes Kubernetes 1.20, and nodes report v0.0.0."""
    kubernetes = modules["k8s.io/kubernetes"]
    major, minor, _ = kubernetes.removeprefix("v").split(".", 2)
    return {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/component-base/version.gitTreeState": "clean",
        "helm.sh/helm/v3/internal/version.version": modules["helm.sh/helm/v3"],
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": minor,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": minor,
    }


KUBERAY = "github.com/ray-project/kuberay/ray-operator"

CLUSTER = go_programs.Family(
    name="cluster",
    title="Kubernetes, etcd, CoreDNS, KubeRay and Helm",
    packages=(
        "github.com/ray-project/kuberay/ray-operator",
        "go.etcd.io/etcd/server/v3",
        "helm.sh/helm/v3/cmd/helm",
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-proxy",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes/cmd/kubectl",
        "k8s.io/kubernetes/cmd/kubelet",
        "rlt.dev/cluster-programs/coredns",
    ),
    estimate_s=400,
    stamps=_stamps,
    renames={"server": "etcd"},
    copies=tuple((KUBERAY, f"config/{part}", f"kuberay/{part}") for part in ("crd", "rbac", "manager")),
)

HELM = go_programs.Family(
    name="helm", title="Helm", packages=("helm.sh/helm/v3/cmd/helm",), estimate_s=90, stamps=_stamps
)
"""Helm alone, for a machine that builds a release and no cluster."""


@dataclass(frozen=True)
class Programs:
    """Paths of the programs."""

    built: Path
    """Folder of etcd, the kube-* programs, kubelet, kubectl, helm, coredns, ray-operator and its config `kuberay/`."""
    runtime: Mapping[str, Path]
    cni: Path
    catatonit: Path

    @property
    def search_path(self) -> str:
        folders = dict.fromkeys(str(path.parent) for path in self.runtime.values())
        return ":".join([str(self.built), *folders, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])


def obtain_programs() -> Programs:
    """Obtain all programs of a cluster: in seconds from the cache, else in 7 to 10 minutes on two cores."""
    with exclusive_lock(cache_folder() / "programs.lock"):
        built = obtain_built()
        install_debian_packages()
        debian = unpack_debian_packages()
    installed = {name: shutil.which(name) for name in RUNTIME}
    if all(installed.values()):
        runtime = {name: Path(path) for name, path in installed.items() if path}
    else:
        runtime = {name: debian / ("usr/sbin" if name == "runc" else "usr/bin") / name for name in RUNTIME}
    return Programs(built, runtime, debian / "usr/lib/cni", debian / "usr/bin/catatonit")


def obtain_built() -> Path:
    """Return the folder of the programs built from Go modules. Builds them if it is missing."""
    return go_programs.obtain(CLUSTER)


def built_folder() -> Path:
    """Return the folder of the programs built from Go modules, which may not exist yet."""
    return go_programs.built_folder(CLUSTER)


def obtain_helm() -> Path:
    """Return Helm: the one of the cluster's programs if they are built, else built alone."""
    folder = built_folder()
    return (folder if folder.exists() else go_programs.obtain(HELM)) / "helm"


def install_debian_packages() -> None:
    """Install the missing packages with apt-get."""
    missing = sorted({package for program, package in INSTALLED.items() if not shutil.which(program)})
    if missing:
        log = cache_folder() / "apt.log"
        with stage(f"install {', '.join(missing)}", estimate_s=30) as this:
            _require_apt(missing)
            apt = {"DEBIAN_FRONTEND": "noninteractive"}
            this.run(["apt-get", "update"], log=log, env=apt)
            this.run(["apt-get", "install", "-y", "--no-install-recommends", *missing], log=log, env=apt)


def unpack_debian_packages() -> Path:
    """Return a folder with containerd, runc, the CNI plugins and catatonit below usr/."""
    packages = ("catatonit", "containerd", "containernetworking-plugins", "runc")
    folder = cache_folder() / "debian"
    if folder.exists():
        return folder
    log = cache_folder() / "apt.log"
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    downloads = draft / "packages"
    with stage(f"unpack {', '.join(packages)}", estimate_s=10) as this:
        _require_apt(packages)
        downloads.mkdir(parents=True)
        this.run(["apt-get", "update"], log=log)
        this.run(["apt-get", "download", *packages], log=log, cwd=downloads)
        for package in downloads.iterdir():
            this.run(["dpkg-deb", "--extract", package, draft], log=log)
        shutil.rmtree(downloads)
        draft.rename(folder)
    return folder


def _require_apt(packages: Sequence[str]) -> None:
    if not shutil.which("apt-get"):
        raise StageError(
            f"this machine has no apt-get: install the equivalents of {', '.join(packages)} with its package manager"
        )
