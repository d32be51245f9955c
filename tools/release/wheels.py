"""The wheels of all distributions, and what an index requires of them."""

from __future__ import annotations

import email
import hashlib
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from release.source import PROJECTS, Source
from rlt_e2e.cluster.stages import StageError, stage
from rlt_e2e.environment import ROOT


def build_wheels(folder: Path, source: Source, tools: Path, log: Path) -> list[Path]:
    """Build a wheel of each distribution into `folder`. `tools` is the folder of twine.

    Raises StageError if a wheel lacks what an index shows or a user needs.
    """
    with stage(f"build {len(PROJECTS)} wheels", estimate_s=5) as this:
        build: list[str | Path] = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            folder,
        ]
        for project in PROJECTS.values():
            this.run(build, log=log, cwd=ROOT / project, env={"SOURCE_DATE_EPOCH": str(source.time)})
        wheels = sorted(folder.glob("*.whl"))
        for wheel in wheels:
            add_links(wheel, build_links(source))
        this.run([tools / "twine", "check", "--strict", *wheels], log=log)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as opened:
            names = opened.namelist()
            (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            problems = find_problems(names, opened.read(metadata).decode(), source.version)
        if problems:
            raise StageError(f"{wheel.name}: {'; '.join(problems)}")
    return wheels


def build_links(source: Source) -> dict[str, str]:
    """Return the links that an index shows, by the labels of "Well-known Project URLs" (packaging.python.org)."""
    changes = f"{source.pages}/CHANGELOG.md"
    return {"Homepage": source.homepage, "Source": f"{source.homepage}/tree/{source.tag}", "Changelog": changes}


def add_links(wheel: Path, links: Mapping[str, str]) -> None:
    """Write links into the METADATA of a wheel, and its new hash into RECORD. Only a release knows its pages."""
    with zipfile.ZipFile(wheel) as opened:
        files = {info: opened.read(info) for info in opened.infolist()}
    (metadata,) = (info for info in files if info.filename.endswith(".dist-info/METADATA"))
    (record,) = (info for info in files if info.filename.endswith(".dist-info/RECORD"))
    first, _, others = files[metadata].partition(b"\n")
    lines = [f"Project-URL: {label}, {url}\n".encode() for label, url in links.items()]
    files[metadata] = b"".join([first, b"\n", *lines, others])
    digest = urlsafe_b64encode(hashlib.sha256(files[metadata]).digest()).rstrip(b"=").decode()
    entry = f"{metadata.filename},sha256={digest},{len(files[metadata])}"
    rows = files[record].decode().splitlines()
    rows = [entry if row.startswith(f"{metadata.filename},") else row for row in rows]
    files[record] = "\n".join([*rows, ""]).encode()
    with zipfile.ZipFile(wheel, "w") as written:
        for info, content in files.items():
            written.writestr(info, content, info.compress_type)


def find_problems(names: list[str], metadata: str, version: str) -> list[str]:
    """Return what is missing in a wheel with these files and this METADATA."""
    fields = email.message_from_string(metadata)
    problems = []
    if fields["Version"] != version:
        problems.append(f"its version is {fields['Version']}, not {version}")
    if not fields.get_payload():
        problems.append("it has no long description: set `readme` in its pyproject.toml")
    if fields["License-Expression"] != "Apache-2.0":
        problems.append("its license is not Apache-2.0: set `license` in its pyproject.toml")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        problems.append("it has no LICENSE: link the one of the repository into its folder")
    return problems
