"""Create .venv: the operator, the trainer for CPUs and the tools, at the versions pinned in requirements/.

Needs only Debian's Python. The environment is created from /usr/bin/python3, which the base image of the pods also has:
the embedded cluster mounts .venv read-only in the trainer's pods instead of copying 7 GB into an image.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rlt_e2e.cluster.stages import StageError, exit_with_message, stage

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv"
REQUIREMENTS = [ROOT / "requirements" / name for name in ("operator.txt", "cli.txt", "trainer-cpu.txt", "dev.txt")]
DISTRIBUTIONS = [ROOT, *(ROOT / name for name in ("pod", "api", "operator", "trainer", "e2e"))]
INPUTS = [Path(__file__), *REQUIREMENTS, *(folder / "pyproject.toml" for folder in DISTRIBUTIONS)]
""".venv is recreated after one of them has changed."""
STAMP = VENV / "rlt-installed"
DEBIAN = ("g++", "libgomp1", "libnuma1", "python3-dev", "python3-venv")
"""Debian packages that the environment needs: vLLM on a CPU uses torch.compile."""
FREE_GB = 10
UNUSED = ("ray/serve", *(f"ray/dashboard/modules/{name}" for name in ("data", "serve", "train")))
"""Folders of site-packages that are removed. Each start of the command `ray` imports ray.serve if it exists, with
pandas and FastAPI. Each dashboard starts a process for each of its modules. Trainer images keep them."""


def is_installed() -> bool:
    """Whether .venv is up to date with the requirements and this file."""
    return STAMP.exists() and STAMP.read_text() == fingerprint(INPUTS)


def check_environment() -> None:
    """Check that .venv is up to date or can be created. Raises StageError."""
    if is_installed():
        return
    if sys.version_info[:2] != (3, 11):
        raise StageError(
            f"/usr/bin/python3 is Python {sys.version.split()[0]}, and the base image of the pods (Debian 12) has 3.11",
            advice="use a machine with Debian 12, or set KUBECONFIG to an existing cluster",
        )
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < FREE_GB:
        raise StageError(
            f"{ROOT} has {free:.0f} GB free and {FREE_GB} GB are required: free disk space, or clone to a larger disk"
        )
    if (missing := list_missing_packages()) and os.geteuid() != 0:
        raise StageError(
            f"Debian's {', '.join(missing)} must be installed, which needs root: "
            f"run `sudo apt-get install --no-install-recommends {' '.join(missing)}`"
        )


def list_missing_packages() -> list[str]:
    """Return the Debian packages that are not installed. Raises StageError on another distribution."""
    if not shutil.which("dpkg"):
        raise StageError(f"{', '.join(DEBIAN)} of Debian 12 are required, and this machine has no dpkg: use Debian 12")
    return [name for name in DEBIAN if subprocess.run(["dpkg", "-s", name], capture_output=True).returncode]


def ensure_environment() -> None:
    """Create .venv, or recreate it after a requirement or this file has changed. Returns at once otherwise."""
    if is_installed():
        return
    check_environment()
    log = ROOT / "out/logs/environment.log"
    with stage("install the Python environment", estimate_s=120) as this:
        if missing := list_missing_packages():
            this.note(f"{', '.join(missing)} from Debian")
            this.run(["apt-get", "update"], log=log)
            this.run(["apt-get", "install", "-y", "--no-install-recommends", *missing], log=log)
        this.note("virtual environment and uv")
        this.run([sys.executable, "-m", "venv", "--clear", VENV], log=log)
        python = VENV / "bin/python"
        uv_pin = VENV / "uv.txt"
        uv_pin.write_text(find_pin("uv", REQUIREMENTS[-1].read_text()))
        this.run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", uv_pin], log=log)
        this.note("torch, vLLM, Ray, kopf and the tools")
        install: list[str | Path] = [VENV / "bin/uv", "pip", "install", "--python", python]
        files: list[str | Path] = [word for path in REQUIREMENTS for word in ("--requirement", path)]
        # The environment is read-only in pods, which therefore cannot write bytecode.
        this.run([*install, "--compile-bytecode", "--require-hashes", *files], log=log)
        (site_packages,) = VENV.glob("lib/python3*/site-packages")
        for folder in UNUSED:
            shutil.rmtree(site_packages / folder)
        this.note("the packages of this repository")
        editable: list[str | Path] = [word for folder in DISTRIBUTIONS for word in ("--editable", folder)]
        this.run([*install, "--no-deps", "--no-build-isolation", *editable], log=log)
        STAMP.write_text(fingerprint(INPUTS))


def fingerprint(files: list[Path]) -> str:
    """Return one hash of all files' contents."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def find_pin(package: str, requirements: str) -> str:
    """Return the lines of one package, with its hashes, from the text of a requirements file."""
    found = re.search(rf"^{re.escape(package)}==.*(?:\n    .*)*\n", requirements, re.MULTILINE)
    assert found, f"{package} is not pinned"
    return found[0]


if __name__ == "__main__":
    with exit_with_message():
        ensure_environment()
