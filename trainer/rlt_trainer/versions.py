"""The oldest versions of torch and transformers that the trainer is tested with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

OLDEST: Mapping[str, tuple[int, int]] = {"torch": (2, 11), "transformers": (5, 17)}
"""Package -> major and minor version, as in trainer/pyproject.toml."""


def validate_versions(find_version: Callable[[str], str] = version) -> None:
    """Raise ImportError if a package is older. Newer versions are accepted, and so is a missing package: its import
    fails by itself."""
    for package, oldest in OLDEST.items():
        try:
            found = find_version(package)
        except PackageNotFoundError:
            continue
        major, minor = found.split(".")[:2]
        if (int(major), int(minor)) < oldest:
            required = ".".join(map(str, oldest))
            raise ImportError(
                f"rlt_trainer requires {package} {required} or later, and {found} is installed: upgrade it."
            )
