"""Images without a registry: buildah builds them in a store of the cache, and nodes load them from archives."""

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import Stage, StageError, cache_folder, stage

DOCKERFILES = Path(__file__).with_name("images")

BASE = "localhost/rlt-base:bookworm"
PAUSE = "localhost/rlt-pause:1"
KUBERAY = "localhost/kuberay-operator:pinned"
TRAINER = "localhost/rlt-trainer:cpu"

BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")


def build_image(
    dockerfile: Path,
    *,
    context: Path,
    tag: str,
    target: str | None = None,
    build_args: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    estimate_s: float = 30.0,
) -> str:
    """Build `tag` from `dockerfile` and return its image id (64 hex digits). Unchanged layers come from the store.

    A label whose value is a build argument keeps its value in the store: set such labels with `labels`.

    The machine's certificate bundle is mounted during the build, for machines behind a proxy that inspects TLS.
    Raises StageError with the log of a failed build.
    """
    command = ["build", "--isolation", "chroot", "--layers", "--pull-never", "--network", "host", "--format", "docker"]
    if Path("/etc/ssl/certs").is_dir():
        command += ["--volume", "/etc/ssl/certs:/etc/ssl/certs:ro"]
    if target:
        command += ["--target", target]
    for name, value in (build_args or {}).items():
        command += ["--build-arg", f"{name}={value}"]
    for name, value in (labels or {}).items():
        command += ["--label", f"{name}={value}"]
    log = cache_folder() / f"image-{_slug(tag)}.log"
    log.unlink(missing_ok=True)
    with exclusive_lock(cache_folder() / "images.lock"), stage(f"image {tag}", estimate_s=estimate_s) as this:
        _buildah(this, log, *command, "--file", dockerfile, "--tag", tag, context)
    return read_image_id(tag)


def read_image_id(tag: str) -> str:
    """Return the id of the image `tag` in the store. Raises StageError if it is not built."""
    command = _command("inspect", "--type", "image", "--format", "{{.FromImageID}}", tag)
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        raise StageError(f"the image {tag} is not built: {answer.stderr.strip()}", advice="build_image(...)")
    return answer.stdout.strip()


def archive(tag: str, *, reference: str | None = None) -> Path:
    """Write the image to an uncompressed archive in the cache and return its path.

    Writes it once per image id, and removes the archives of the tag's earlier ids. `reference` is the name of the
    image after loading, by default `tag`.
    """
    folder = cache_folder() / "archives"
    file = folder / f"{_slug(tag)}-{read_image_id(tag)[:12]}.tar"
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(cache_folder() / "images.lock"):
        if not file.exists():
            draft = file.with_suffix(f".{os.getpid()}")
            with stage(f"archive {tag}", estimate_s=10) as this:
                log = cache_folder() / f"image-{_slug(tag)}.log"
                _buildah(this, log, "push", "--disable-compression", tag, f"docker-archive:{draft}:{reference or tag}")
            for old in folder.glob(f"{_slug(tag)}-*"):
                if old != draft:
                    old.unlink()
            draft.rename(file)
    return file


def build_base() -> None:
    """Build Debian bookworm with Python 3.11, the interpreter of the mounted environment."""
    packages = ",".join(BASE_PACKAGES)
    folder = cache_folder() / f"base-{hashlib.sha256(packages.encode()).hexdigest()[:12]}"
    rootfs = folder / "rootfs.tar"
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(cache_folder() / "base.lock"):
        if not rootfs.exists():
            log = folder / "mmdebstrap.log"
            with stage("create a Debian root file system", estimate_s=45) as this:
                options = ["--variant=minbase", "--mode=root", f"--include={packages}"]
                # In a private mount namespace, an interrupted run leaves no mount.
                command = ["unshare", "--mount", "mmdebstrap", *options, "bookworm", f"{folder}/draft.tar"]
                this.run(command, log=log)
                (folder / "draft.tar").rename(rootfs)
    build_image(DOCKERFILES / "base.Dockerfile", context=folder, tag=BASE)


def _command(*arguments: str | Path) -> list[str]:
    store = cache_folder() / "images"
    where = ["--root", f"{store}/root", "--runroot", f"{store}/run", "--storage-driver", "overlay"]
    # In a private mount namespace, the mounts of the store end with the command, even if it is interrupted.
    return ["unshare", "--mount", "buildah", *where, *map(str, arguments)]


def _buildah(this: Stage, log: Path, *arguments: str | Path) -> None:
    this.run(_command(*arguments), log=log, on_line=this.note)


def _slug(tag: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", tag)
