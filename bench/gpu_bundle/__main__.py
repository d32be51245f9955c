"""`python -m gpu_bundle`: write out/gpu-bundle: parts with checksums, and join.py, which joins them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_bundle.contents import CHECK_PACKAGES, LEFT_OUT_OF_VLLM, PLATFORM, PYTHON, SOURCES, find_packages, find_pins
from gpu_bundle.parts import split, write_archive, write_manifest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUNDLE = ROOT / "out/gpu-bundle"
REQUIREMENTS = tuple(ROOT / "requirements" / name for name in ("trainer-cuda.txt", "dev.txt"))


def main() -> None:
    """Write the bundle."""
    with tempfile.TemporaryDirectory(prefix="rlt-gpu-bundle-") as scratch:
        write_bundle(Path(scratch))
    files = sorted(BUNDLE.iterdir())
    size = sum(file.stat().st_size for file in files) / 2**20
    print(f"{len(files)} files, {size:.1f} MiB, in {BUNDLE}. On the machine: python3 join.py")


def write_bundle(scratch: Path) -> None:
    """Write the bundle to BUNDLE, in place of an earlier one."""
    check = scratch / "check"
    engine = scratch / "engine"
    result = scratch / "bundle"
    result.mkdir()
    commit = describe_commit()
    copy_sources(check / "sources")
    (check / "COMMIT").write_text(f"{commit}\n", encoding="utf-8")
    shutil.copy(HERE / "run.sh", check)
    install(CHECK_PACKAGES, check / "packages", scratch)
    install(find_packages(REQUIREMENTS[0].read_text(encoding="utf-8")), engine / "engine", scratch)
    remove(engine / "engine", LEFT_OUT_OF_VLLM)
    archives = {}
    for name, folder in {"check": check, "engine": engine}.items():
        archive = scratch / f"{name}.tar.xz"
        print(f"compressing {name}", flush=True)
        write_archive(folder, archive)
        archives[name] = split(archive, result)
    write_manifest(result, commit, archives)
    shutil.copy(HERE / "join.py", result)
    shutil.rmtree(BUNDLE, ignore_errors=True)
    BUNDLE.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(result, BUNDLE)


def describe_commit() -> str:
    """Return the commit of the sources, with a mark if files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def copy_sources(target: Path) -> None:
    """Copy the files that git tracks or does not ignore."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", *SOURCES]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def install(names: tuple[str, ...] | list[str], target: Path, scratch: Path) -> None:
    """Install packages for the machine's Python and platform into a folder, by their pins with hashes."""
    pins = scratch / "pins.txt"
    pins.write_text(find_pins(names, *REQUIREMENTS), encoding="utf-8")
    print(f"installing {len(names)} packages for Python {PYTHON}", flush=True)
    uv = Path(sys.executable).parent / "uv"
    options = ["--python-version", PYTHON, "--python-platform", PLATFORM, "--no-deps", "--only-binary", ":all:"]
    command: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--target",
        target,
        *options,
        "--require-hashes",
        "--requirement",
        pins,
    ]
    subprocess.run(command, check=True, env=os.environ | {"UV_LINK_MODE": "copy"})


def remove(folder: Path, patterns: tuple[str, ...]) -> None:
    """Remove files and folders."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
