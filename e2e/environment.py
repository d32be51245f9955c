"""Makes .venv: the operator, the trainer for CPUs and the tools, at the versions pinned in requirements/.

Runs with Debian's own Python alone. The environment is made from /usr/bin/python3, which the pods' base image has too:
the embedded cluster mounts .venv read-only into the trainer's pods instead of copying 7 GB into an image.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cluster.stages import StageError, exit_plainly, stage

ROOT = Path(__file__).parent.parent
VENV = ROOT / ".venv"
REQUIREMENTS = [ROOT / "requirements" / name for name in ("operator.txt", "cli.txt", "trainer-cpu.txt", "dev.txt")]
DISTRIBUTIONS = [ROOT / name for name in ("crds", "core", "operator", "cli", "trainer", "e2e")]
DEBIAN = ("g++", "libgomp1", "libnuma1", "python3-dev", "python3-venv")
"""Packages that the environment needs: vLLM on a CPU compiles with torch.compile."""
FREE_GB = 10


def ensure_environment() -> None:
    """Make .venv, or make it anew where a requirement changed. Cheap when there is nothing to do."""
    stamp = VENV / "rlt-installed"
    wanted = fingerprint([*REQUIREMENTS, *(folder / "pyproject.toml" for folder in DISTRIBUTIONS)])
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if sys.version_info[:2] != (3, 11):
        raise StageError(
            f"/usr/bin/python3 is Python {sys.version.split()[0]}, and the pods' base image (Debian 12) has 3.11",
            advice="use a Debian 12 machine, or give a cluster of your own by KUBECONFIG",
        )
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < FREE_GB:
        raise StageError(
            f"{ROOT} has {free:.0f} GB of free disk and {FREE_GB} GB are needed: free some, or clone elsewhere"
        )
    log = ROOT / "out/logs/environment.log"
    with stage("install the Python environment", estimate_s=120) as this:
        if missing := [name for name in DEBIAN if subprocess.run(["dpkg", "-s", name], capture_output=True).returncode]:
            this.note(f"{', '.join(missing)} from Debian")
            this.run(["apt-get", "update"], log=log)
            this.run(["apt-get", "install", "-y", "--no-install-recommends", *missing], log=log)
        this.note("virtual environment and uv")
        this.run([sys.executable, "-m", "venv", "--clear", VENV], log=log)
        python = VENV / "bin/python"
        uv_pin = VENV / "uv.txt"
        uv_pin.write_text(pin_of("uv", REQUIREMENTS[-1].read_text()))
        this.run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", uv_pin], log=log)
        this.note("torch, vLLM, Ray, kopf and the tools")
        install: list[str | Path] = [VENV / "bin/uv", "pip", "install", "--python", python]
        files: list[str | Path] = [word for path in REQUIREMENTS for word in ("--requirement", path)]
        # Pods see the environment read-only, so that they could not keep what they compile.
        this.run([*install, "--compile-bytecode", "--require-hashes", *files], log=log)
        this.note("this repository's own packages")
        editable: list[str | Path] = [word for folder in DISTRIBUTIONS for word in ("--editable", folder)]
        this.run([*install, "--no-deps", "--no-build-isolation", *editable], log=log)
        stamp.write_text(wanted)


def fingerprint(files: list[Path]) -> str:
    """One hash over the contents of all files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def pin_of(package: str, requirements: str) -> str:
    """The lines of one package, with its hashes, out of a requirements file's text."""
    found = re.search(rf"^{re.escape(package)}==.*(?:\n    .*)*\n", requirements, re.MULTILINE)
    assert found, f"{package} is not pinned"
    return found[0]


if __name__ == "__main__":
    with exit_plainly():
        ensure_environment()
