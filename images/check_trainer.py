"""Check the Python environment of a trainer image during its build, without an accelerator.

Every requirement of rlt-trainer and of its extras is installed in a version that it accepts, and every module of it can
be imported. The extras with a build of vLLM are left out. If FlashInfer is installed, vLLM uses its kernels.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable
from importlib import metadata

from packaging.requirements import Requirement

DISTRIBUTION = "rlt-trainer"
PACKAGE = "rlt_trainer"
BUILDS = {"cpu", "cuda"}
"""The extras that have a build of vLLM. An image has one of them, or another build. It has all other extras."""


def find_unmet(requirements: list[str], extras: Iterable[str] = ()) -> list[str]:
    """Return a sentence for each requirement that is not met, of those without an extra and of `extras`."""
    unmet = []
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            unmet.append(f"{requirement} is not installed")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            unmet.append(f"{requirement} is required, and {version} is installed")
    return unmet


def find_failing_imports(package: str) -> list[str]:
    """Import all modules of a package except the programs (__main__). Return a sentence for each that fails."""
    failing = []
    folder = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(folder, f"{package}."):
        if not module.name.endswith(".__main__"):
            try:
                importlib.import_module(module.name)
            except Exception as error:  # any error of any library
                failing.append(f"{module.name} cannot be imported: {type(error).__name__}: {error}")
    return failing


def find_disabled_kernels() -> list[str]:
    """Return a sentence if vLLM uses other kernels than FlashInfer's, although it is installed: vLLM only warns."""
    if importlib.util.find_spec("flashinfer") is None:
        return []
    from vllm.utils.flashinfer import has_flashinfer

    if has_flashinfer():
        return []
    return ["vLLM disables the kernels of FlashInfer: nvcc must be in /usr/local/cuda/bin, and ninja in PATH"]


if __name__ == "__main__":
    extras = set(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra", [])) - BUILDS
    unmet = find_unmet(metadata.requires(DISTRIBUTION) or [], extras)
    if problems := [*unmet, *find_failing_imports(PACKAGE), *find_disabled_kernels()]:
        sys.exit("\n".join(problems))
