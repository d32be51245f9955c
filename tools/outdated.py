"""List the pins that are behind: `make outdated`. For each, where its changelog is and what the index warns of.

Versions of Python packages are from the index that pip is configured with, and versions of Go modules from the GOPROXY
of `go env`. Only direct dependencies are listed. Nothing is changed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from urllib.parse import urljoin

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PYTHON = "3.11"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
GO_LINE = re.compile(r"^(?:require\s+|\t)(\S+) (v\S+)$", re.MULTILINE)
"""A direct requirement of a go.mod: the others end with a comment."""
CHANGELOG = re.compile(r"change|release|history|news", re.IGNORECASE)
SOURCE = re.compile(r"source|repository|code|github", re.IGNORECASE)
WARNING = re.compile(
    r"\bbreaking change|\bbreaking\b.*:|backwards?[- ]incompatible|\bdrop(s|ped)? support", re.IGNORECASE
)
MAX_WARNINGS = 3
MAX_LENGTH = 200
"""Characters of a warning."""
CONNECTIONS = 8
SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
"""PEP 691."""
File = Mapping[str, Any]
"""A file of a package in an index."""
Metadata = Mapping[str, Any]
"""Metadata of a version: `project_urls` and `description`."""


class IndexUnreachableError(Exception):
    """The index of Python packages, or the proxy of Go modules, does not respond."""


class Fetch(Protocol):
    """Return a page from the index, by its path or URL. None if the index does not have the page."""

    def __call__(self, path: str) -> bytes | None: ...


@dataclass(frozen=True)
class Pin:
    name: str
    version: str
    files: tuple[str, ...]
    """Relative to the repository."""


@dataclass(frozen=True)
class Finding:
    pin: Pin
    newest: str
    changelog: str
    """Address, empty if the metadata has none."""
    warnings: tuple[str, ...] = ()


def main() -> None:
    packages = read_python_pins(ROOT)
    modules = read_go_pins(ROOT)
    try:
        fetch = open_index()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            found = [*pool.map(lambda pin: examine_package(pin, fetch), packages), *examine_modules(modules)]
    except IndexUnreachableError as error:
        sys.exit(str(error))
    findings = [finding for finding in found if finding]
    for finding in findings:
        print(format_finding(finding))
    print(f"{len(findings)} of {len(packages) + len(modules)} pins are behind or have a warning")


def read_python_pins(root: Path) -> list[Pin]:
    """Return the pins of direct dependencies in requirements/: one for each version of a package."""
    projects = [tomllib.loads(path.read_text()) for path in (root / "pyproject.toml", *root.glob("*/pyproject.toml"))]
    direct = {name for project in projects for name in list_dependencies(project)}
    files: dict[tuple[str, str], list[str]] = {}
    for path in sorted((root / "requirements").glob("*.txt")):
        for name, version in PIN.findall(path.read_text()):
            if canonicalize_name(name) in direct:
                files.setdefault((canonicalize_name(name), version), []).append(str(path.relative_to(root)))
    return [Pin(name, version, tuple(places)) for (name, version), places in sorted(files.items())]


def list_dependencies(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield the normalized names of the packages that a pyproject.toml names, with extras and groups."""
    table = project.get("project", {})
    lists = [table.get("dependencies", []), *table.get("optional-dependencies", {}).values()]
    lists += [project.get("build-system", {}).get("requires", []), *project.get("dependency-groups", {}).values()]
    for requirement in (requirement for each in lists for requirement in each):
        yield canonicalize_name(Requirement(requirement).name)


def read_go_pins(root: Path) -> list[Pin]:
    """Return the direct requirements of all go.mod files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "*go.mod"], cwd=root, check=True, capture_output=True, text=True)
    files: dict[tuple[str, str], list[str]] = {}
    for name in listed.stdout.splitlines():
        for module, version in GO_LINE.findall((root / name).read_text()):
            files.setdefault((module, version), []).append(name)
    return [Pin(module, version, tuple(places)) for (module, version), places in sorted(files.items())]


def open_index() -> Fetch:
    """Return a function that reads the index of pip's configuration, with pip's certificates, proxies and passwords.

    pip has no public API for its configuration. The function raises IndexUnreachableError.
    """
    from pip._internal.commands import create_command

    command: Any = create_command("download")
    options, _ = command.parse_args([])
    with command.main_context():
        session = command.get_default_session(options)
    index = options.index_url.rstrip("/") + "/"

    def fetch(path: str) -> bytes | None:
        try:
            answer = session.get(urljoin(index, path), headers={"Accept": SIMPLE_JSON}, timeout=options.timeout)
            if answer.status_code in (404, 410):
                return None
            answer.raise_for_status()
        except OSError as error:  # as all errors of requests
            raise IndexUnreachableError(
                f"The package index does not respond ({type(error).__name__}). Connect this machine, or set "
                "PIP_INDEX_URL to a mirror."
            ) from None
        content: bytes = answer.content
        return content

    return fetch


def examine_package(pin: Pin, fetch: Fetch) -> Finding | None:
    """Return what is to be known about a pin. None if it is the newest version and not yanked."""
    page = fetch(f"{pin.name}/")
    if page is None:
        return Finding(pin, "", "", ("the index does not have this package",))
    files: Sequence[File] = json.loads(page)["files"]
    newest = choose_newest(files)
    yanked = find_yanked(files, pin.version)
    if not yanked and (newest is None or newest <= Version(pin.version)):
        return None
    metadata = read_metadata(pin.name, fetch)
    return Finding(pin, str(newest or ""), find_changelog(metadata), (*yanked, *find_warnings(metadata)))


def choose_newest(files: Sequence[File]) -> Version | None:
    """Return the newest version with a file for the project's Python. Not a pre-release, not a yanked version."""
    usable = [
        version
        for file in files
        if (version := read_version(file)) and not file.get("yanked") and not version.is_prerelease
        if SpecifierSet(file.get("requires-python") or "").contains(PYTHON)
    ]
    return max(usable, default=None)


def read_version(file: File) -> Version | None:
    """Return the version in the name of a file. None if the name follows no standard, as in old releases."""
    name = file["filename"]
    try:
        return parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
    except (InvalidSdistFilename, InvalidWheelFilename):
        return None


def find_yanked(files: Sequence[File], version: str) -> list[str]:
    """Return a sentence if all files of a version are yanked: PEP 592."""
    reasons = [file.get("yanked") for file in files if read_version(file) == Version(version)]
    if not reasons or not all(reasons):
        return []
    return [f"{version} is yanked" + (f": {reasons[0]}" if isinstance(reasons[0], str) else "")]


def read_metadata(name: str, fetch: Fetch) -> Metadata:
    """Return the metadata of the newest version. Empty if the index does not serve it: only PyPI's API has it."""
    page = fetch(f"../pypi/{name}/json")
    info: Metadata = json.loads(page)["info"] if page else {}
    return info


def find_changelog(metadata: Metadata) -> str:
    """Return the address of the changelog, else of the repository or the first page that the metadata names."""
    links: Mapping[str, str] = metadata.get("project_urls") or {}
    chosen = [url for label, url in links.items() if CHANGELOG.search(label)]
    source = [url for label, url in links.items() if SOURCE.search(label)]
    return next(iter((*chosen, *source, *links.values(), "")))


def find_warnings(metadata: Metadata) -> list[str]:
    """Return the first lines of the description that announce an incompatible change."""
    description = metadata.get("description") or ""
    lines = [" ".join(line.split()).strip("*-# ") for line in description.splitlines() if WARNING.search(line)]
    return [line[:MAX_LENGTH] for line in lines[:MAX_WARNINGS]]


def examine_modules(pins: Sequence[Pin]) -> Iterator[Finding | None]:
    """Yield what is to be known about each Go module. None if it is the newest version and not retracted."""
    command = ["go", "list", "-m", "-u", "-e", "-json", *(f"{pin.name}@{pin.version}" for pin in pins)]
    with TemporaryDirectory() as folder:  # outside of a module
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise IndexUnreachableError(f"`go list` fails: {done.stderr.strip()}")
    decoder = json.JSONDecoder()
    rest = done.stdout.strip()
    for pin in pins:
        module, end = decoder.raw_decode(rest)
        rest = rest[end:].lstrip()
        yield describe_module(pin, module)


def describe_module(pin: Pin, module: Mapping[str, Any]) -> Finding | None:
    """Return what `go list -m -u -json` reports about a module."""
    if error := module.get("Error"):
        message = " ".join(error["Err"].split())
        raise IndexUnreachableError(
            f"The Go module proxy does not respond: {message}. Connect this machine, or set GOPROXY to a mirror."
        )
    retracted = [f"{pin.version} is retracted: {reason}" for reason in module.get("Retracted", [])]
    deprecated = [f"deprecated: {module['Deprecated']}"] if "Deprecated" in module else []
    if not (retracted or deprecated or "Update" in module):
        return None
    newest = module.get("Update", module)["Version"]
    return Finding(pin, newest, f"https://{pin.name}", (*retracted, *deprecated))


def format_finding(finding: Finding) -> str:
    """Return a line for the pin, and one for each file, address and warning."""
    pin = finding.pin
    details = [
        *pin.files,
        *([finding.changelog] if finding.changelog else []),
        *(f"! {each}" for each in finding.warnings),
    ]
    return "\n    ".join([f"{pin.name} {pin.version}" + (f" -> {finding.newest}" if finding.newest else ""), *details])


if __name__ == "__main__":
    main()
