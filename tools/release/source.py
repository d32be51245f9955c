"""What a release is made from: a clean tree at the tag of its version, whose packages have this version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from rlt_e2e.cluster.stages import StageError
from rlt_e2e.environment import ROOT

PROJECTS = {"rlt": ".", "rlt-pod": "pod", "rlt-api": "api", "rlt-operator": "operator", "rlt-trainer": "trainer"}
"""Distribution -> its folder."""
CHART = "charts/rlt-operator/Chart.yaml"
SHOWN = 3
"""Changed files that a message names."""


@dataclass(frozen=True)
class Source:
    version: str
    revision: str
    """The commit."""
    time: int
    """When it was committed, in Unix time: the time of all files in archives."""
    homepage: str
    """Web page of the repository, without a slash at its end."""
    notes: str
    """Section of the changelog, in Markdown."""

    @property
    def tag(self) -> str:
        return f"v{self.version}"

    @property
    def downloads(self) -> str:
        """Where the files of the release are published."""
        return f"{self.homepage}/releases/download/{self.tag}"

    @property
    def pages(self) -> str:
        """Where the files of the repository at this tag are shown."""
        return f"{self.homepage}/blob/{self.tag}"


@dataclass(frozen=True)
class Tree:
    """What git and the files of the repository contain."""

    changed: tuple[str, ...]
    """Files that differ from the commit, and files that git does not track."""
    revision: str
    tagged: str
    """Commit of the version's tag, empty without the tag."""
    versions: Mapping[str, str]
    """Where -> version."""
    changelog: str


def read_source(version: str, homepage: str) -> Source:
    """Return the source of the release `version`. `homepage` is by default the page of the remote origin.

    Raises StageError if the repository is not at this release.
    """
    tree = read_tree(version)
    if problem := find_problem(version, tree):
        raise StageError(problem)
    page = homepage or find_homepage(run_git("config", "--default", "", "remote.origin.url"))
    if not page.startswith("https://"):
        raise StageError(
            f"HOMEPAGE: {page or 'the remote origin'} is not a web page: pass HOMEPAGE=https://…, the page of the "
            "repository, to which wheels, chart and krew manifest link"
        )
    committed = int(run_git("show", "--no-patch", "--format=%ct", "HEAD"))
    return Source(version, tree.revision, committed, page.rstrip("/"), find_notes(version, tree.changelog))


def read_tree(version: str, root: Path = ROOT) -> Tree:
    """Read the state of the repository."""
    chart = yaml.safe_load((root / CHART).read_text())
    versions = {f"{CHART}: {key}": str(chart[key]) for key in ("version", "appVersion")}
    for folder in PROJECTS.values():
        file = root / folder / "pyproject.toml"
        versions[f"{file.relative_to(root)}: project.version"] = tomllib.loads(file.read_text())["project"]["version"]
    tag = f"refs/tags/v{version}^{{commit}}"
    return Tree(
        changed=tuple(line[3:] for line in run_git("status", "--porcelain", root=root).splitlines()),
        revision=run_git("rev-parse", "HEAD", root=root),
        tagged=run_git("rev-parse", "--verify", "--quiet", tag, root=root, check=False),
        versions=versions,
        changelog=(root / "CHANGELOG.md").read_text(),
    )


def find_problem(version: str, tree: Tree) -> str | None:
    """Return why the tree is not this release, and what to do."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        return f"VERSION: {version or 'empty'} is not a version such as 0.1.0: pass VERSION=X.Y.Z, without a v"
    for place, found in tree.versions.items():
        if found != version:
            return f"VERSION: {version} is not the version in {place}, {found}: change one of them"
    if tree.changed:
        more = f" and {len(tree.changed) - SHOWN} more" if len(tree.changed) > SHOWN else ""
        return f"{', '.join(tree.changed[:SHOWN])}{more}: not committed: commit or remove the changes"
    if not find_notes(version, tree.changelog):
        return (
            f"CHANGELOG.md: no heading `## {version} (YYYY-MM-DD)`: replace `unreleased` with the date, and commit it"
        )
    if not tree.tagged:
        return f"the tag v{version} does not exist: run `git tag v{version}` on the commit to release"
    if tree.tagged != tree.revision:
        return (
            f"HEAD is {tree.revision[:12]}, and the tag v{version} is {tree.tagged[:12]}: run `git checkout v{version}`"
        )
    return None


def find_notes(version: str, changelog: str) -> str:
    """Return the section of a dated version, without its heading. Empty if it does not exist or has no date."""
    section = rf"^## {re.escape(version)} \(\d{{4}}-\d{{2}}-\d{{2}}\)\n(.*?)(?=^## |\Z)"
    found = re.search(section, changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() + "\n" if found else ""


def find_homepage(remote: str) -> str:
    """Return the web page of a remote such as git@github.com:owner/name.git. Empty if it has none."""
    found = re.fullmatch(r"(?:https://|ssh://git@|git@)([^/:@]+)[/:](.+?)(?:\.git)?/?", remote)
    return f"https://{found[1]}/{found[2]}" if found else ""


def run_git(*arguments: str, root: Path = ROOT, check: bool = True) -> str:
    """Run git in the repository and return its output without the line break at its end."""
    done = subprocess.run(["git", *arguments], cwd=root, check=check, capture_output=True, text=True)
    return done.stdout.rstrip("\n")
