"""What `make release` was asked for."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlt_e2e.cluster.stages import StageError

IMAGES = {
    "operator": ("rlt-operator", ""),
    "trainer-cpu": ("rlt-trainer", "-cpu"),
    "trainer-cuda": ("rlt-trainer", "-cuda"),
}
"""Name, as in `make image-…` -> repository in the registry, and what its tag has after the version."""


@dataclass(frozen=True)
class Options:
    version: str
    homepage: str
    """Empty: the page of the remote origin."""
    registry: str
    """Empty: nothing is pushed."""
    images: tuple[str, ...]
    key: Path | None
    """Private key of cosign. None: nothing is signed."""


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Parse the arguments that the Makefile passes. Raises StageError for those that cannot work on this machine."""
    parser = argparse.ArgumentParser(prog="make release", description="Build a release.")
    parser.add_argument("--version", required=True)
    parser.add_argument("--images", default="operator")
    for name in ("homepage", "registry", "key"):
        parser.add_argument(f"--{name}", default="")
    given = parser.parse_args(arguments)
    key = Path(given.key).absolute() if given.key else None
    images = tuple(given.images.replace(",", " ").split())
    options = Options(given.version, given.homepage, given.registry.rstrip("/"), images, key)
    if problem := find_problem(options, is_root=os.geteuid() == 0):
        raise StageError(problem)
    return options


def find_problem(options: Options, *, is_root: bool) -> str | None:
    """Return why the options cannot work, and what to do."""
    if unknown := [name for name in options.images if name not in IMAGES]:
        return f"IMAGES: {', '.join(unknown)} is not an image: use {' or '.join(IMAGES)}, or IMAGES= for none"
    if options.images and not is_root:
        return f"IMAGES: {', '.join(options.images)}: a build needs root: run make with sudo, or pass IMAGES= for none"
    if options.registry and "operator" not in options.images:
        return f"REGISTRY: {options.registry}: a pushed chart names the operator's image: add operator to IMAGES"
    if options.registry.partition("://")[1]:
        return (
            f"REGISTRY: {options.registry} is an address with a scheme: pass it without, as registry.example.com/team"
        )
    if options.key and not options.key.is_file():
        return f"COSIGN_KEY: {options.key} does not exist: write a key with `cosign generate-key-pair`"
    return None
