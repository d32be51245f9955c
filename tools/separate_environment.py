"""Environments in the cache folder, of packages that the project's environment cannot have."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rlt_e2e.cluster.stages import cache_folder, stage
from rlt_e2e.environment import ROOT, VENV, fingerprint


def install(name: str, *options: str, on_top: bool = False) -> Path:
    """Install requirements/NAME.txt, once for each state of the file, and return the Python of its environment.

    `options` are `uv pip install`'s. `on_top`: the environment also has the packages of the project's.
    """
    requirements = ROOT / f"requirements/{name}.txt"
    folder = cache_folder() / f"{name}-{fingerprint([requirements])[:12]}"
    python = folder / "bin/python"
    stamp = folder / "installed"
    if not stamp.exists():
        log = ROOT / f"out/logs/{name}.log"
        with stage(f"install requirements/{name}.txt", estimate_s=20) as this:
            this.run([VENV / "bin/uv", "venv", "--clear", "--python", sys.executable, folder], log=log)
            install: list[str | Path] = [VENV / "bin/uv", "pip", "install", "--python", python, *options]
            this.run([*install, "--require-hashes", "--requirement", requirements], log=log)
        stamp.touch()
    if on_top:  # another clone may have installed it
        packages = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
        (folder / packages / "project.pth").write_text(f"{VENV / packages}\n")
    return python


def install_npm(name: str, programs: Path) -> Path:
    """Install requirements/NAME/package-lock.json, once for each state of the file, and return its folder node_modules.

    `programs`: the folder with npm. Scripts of the packages do not run. After a change of package.json, run there
    `npm install --package-lock-only --omit-lockfile-registry-resolved`: the lock then has hashes, and no registry.
    """
    lock = ROOT / f"requirements/{name}/package-lock.json"
    folder = cache_folder() / f"{name}-{fingerprint([lock])[:12]}"
    stamp = folder / "installed"
    if not stamp.exists():
        with stage(f"install requirements/{name}", estimate_s=60) as this:
            shutil.copytree(lock.parent, folder, dirs_exist_ok=True)
            cache = folder / "cache"
            ci: list[str | Path] = [programs / "npm", "ci", "--ignore-scripts", "--cache", cache]
            this.run([*ci, "--no-audit", "--no-fund"], log=ROOT / f"out/logs/{name}.log", cwd=folder)
            shutil.rmtree(cache)
        stamp.touch()
    return folder / "node_modules"
