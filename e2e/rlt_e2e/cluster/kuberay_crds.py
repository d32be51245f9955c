"""The RayCluster CRDs of several KubeRay versions, from its Go modules. kuberay/go.sum pins the versions."""

import hashlib
import re
import shutil
from pathlib import Path

from rlt_e2e.cluster.go_programs import GO_ENV, obtain_go
from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import cache_folder, stage

PINS = Path(__file__).with_name("kuberay")
MODULE = "github.com/ray-project/kuberay/ray-operator"

VERSIONS = tuple(re.findall(rf"^{re.escape(MODULE)} v([\d.]+) h1:", (PINS / "go.sum").read_text(), re.MULTILINE))
"""Versions such as 1.6.2, oldest first."""


def obtain_ray_cluster_crd(version: str) -> Path:
    """Return the file of the CRD. Downloads it the first time, in seconds. Raises StageError."""
    assert version in VERSIONS, "Go verifies downloads of these versions against go.sum"
    pins = hashlib.sha256((PINS / "go.sum").read_bytes()).hexdigest()[:12]
    file = cache_folder() / f"kuberay-crds-{pins}" / f"{version}.yaml"
    with exclusive_lock(cache_folder() / "kuberay-crds.lock"):
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_suffix(".draft")
            shutil.copyfile(_module(version) / "config/crd/bases/ray.io_rayclusters.yaml", draft)
            draft.rename(file)
    return file


def _module(version: str) -> Path:
    """Download the module and return its folder."""
    log = cache_folder() / "kuberay-crds.log"
    output = list[str]()
    with stage(f"download KubeRay {version}", estimate_s=5) as this:
        command: list[str | Path] = [obtain_go(PINS, log), "mod", "download", "-json", f"{MODULE}@v{version}"]
        this.run(command, log=log, cwd=PINS, env=GO_ENV, on_line=output.append)
    found = re.search(r'"Dir": "(.+)"', "\n".join(output))
    assert found
    return Path(found[1])
