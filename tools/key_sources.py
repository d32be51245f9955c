"""Where tables of keys come from: a commit of a repository, or a wheel."""

from __future__ import annotations

import re
import subprocess
import zipfile
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Source:
    """FOLDER@COMMIT of a repository, or the path of a wheel."""

    location: str

    @property
    def version(self) -> str:
        """The version of a wheel, or the commit."""
        if wheel := re.search(r"-(\d[^-]*)-[^/]*\.whl$", self.location):
            return wheel[1]
        return _run_git(self.location, "rev-parse", "{}").strip()

    def has(self, path: str) -> bool:
        """Return whether the source has a file."""
        return path in list_files(self.location)

    def read(self, path: str) -> str:
        """Read a file."""
        if self.location.endswith(".whl"):
            with zipfile.ZipFile(self.location) as wheel:
                return wheel.read(path).decode()
        return _run_git(self.location, "show", f"{{}}:{path}")


@cache
def list_files(location: str) -> frozenset[str]:
    """List the paths of all files."""
    if location.endswith(".whl"):
        with zipfile.ZipFile(location) as wheel:
            return frozenset(wheel.namelist())
    return frozenset(_run_git(location, "ls-tree", "-r", "--name-only", "{}").splitlines())


@cache
def _run_git(location: str, *arguments: str) -> str:
    """Run git with the commit in place of {}."""
    folder, _, commit = location.rpartition("@")
    command = ["git", "-C", folder, *(each.format(commit) for each in arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
