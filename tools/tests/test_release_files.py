"""The files of a release: wheels, archives, checksums and lists of packages."""

from __future__ import annotations

import email
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from release.archive import write_archive
from release.checksums import write_checksums
from release.sboms import add_debian_packages, read_dpkg_status
from release.source import PROJECTS, Source, read_tree
from release.wheels import add_links, build_links, find_problems
from rlt_e2e.environment import ROOT
from rlt_e2e.tar_bytes import write_tar

METADATA = "Metadata-Version: 2.4\nName: rlt\nVersion: 0.1.0\nLicense-Expression: Apache-2.0\n\n# rlt\nText.\n"
FILES = ["rlt/__init__.py", "rlt-0.1.0.dist-info/METADATA", "rlt-0.1.0.dist-info/licenses/LICENSE"]
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u13
Description: GNU C Library
 Shared libraries.

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


@pytest.mark.parametrize("folder", PROJECTS.values())
def test_the_wheel_of_each_package_has_what_an_index_shows(folder: str, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / folder, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        version = next(iter(read_tree("0.1.0").versions.values()))
        assert find_problems(names, opened.read(metadata).decode(), version) == []


def test_a_wheel_gets_the_links_of_its_release(tmp_path: Path) -> None:
    wheel = tmp_path / "rlt-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as written:
        written.writestr(FILES[1], METADATA)
        written.writestr("rlt-0.1.0.dist-info/RECORD", f"{FILES[1]},sha256=old,1\nrlt/__init__.py,,\n")
    add_links(wheel, build_links(Source("0.1.0", "c" * 40, 0, "https://git.example/team/rlt", "")))
    with zipfile.ZipFile(wheel) as opened:
        metadata = opened.read(FILES[1])
        record = opened.read("rlt-0.1.0.dist-info/RECORD").decode().splitlines()
    fields = email.message_from_bytes(metadata)
    assert fields.get_all("Project-URL") == [
        "Homepage, https://git.example/team/rlt",
        "Source, https://git.example/team/rlt/tree/v0.1.0",
        "Changelog, https://git.example/team/rlt/blob/v0.1.0/CHANGELOG.md",
    ]
    assert (fields["Name"], fields.get_payload()) == ("rlt", "# rlt\nText.\n")
    digest = urlsafe_b64encode(hashlib.sha256(metadata).digest()).rstrip(b"=").decode()
    assert record == [f"{FILES[1]},sha256={digest},{len(metadata)}", "rlt/__init__.py,,"]


@pytest.mark.parametrize(
    ("names", "metadata", "word"),
    [
        (FILES, METADATA.replace("Version: 0.1.0", "Version: 0.1.1"), "0.1.1, not 0.1.0"),
        (FILES, METADATA.partition("\n\n")[0] + "\n\n", "readme"),
        (FILES, METADATA.replace("Apache-2.0", "MIT"), "license"),
        (FILES[:2], METADATA, "LICENSE"),
    ],
)
def test_a_wheel_that_lacks_something_is_reported(names: list[str], metadata: str, word: str) -> None:
    assert find_problems(FILES, METADATA, "0.1.0") == []
    (problem,) = find_problems(names, metadata, "0.1.0")
    assert word in problem


def test_an_archive_depends_on_its_files_alone(tmp_path: Path) -> None:
    archives: list[Path] = []
    for name in ("first", "second"):
        folder = tmp_path / name / "plugin"
        folder.mkdir(parents=True)
        (folder / "program").write_text("#!/bin/sh\n")
        (folder / "program").chmod(0o750 if name == "first" else 0o711)
        (folder / "link").symlink_to(folder / "program")
        os.utime(folder / "program", (len(archives), len(archives)))
        archives.append(tmp_path / f"{name}.tar.gz")
        write_archive(folder, archives[-1], time=1000)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        assert archive.getnames() == ["plugin", "plugin/link", "plugin/program"]
        assert archive.getmember("plugin/link").isfile()
        assert archive.getmember("plugin/program").mode == 0o755


def test_sha256sum_accepts_the_checksums_until_a_file_changes(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/operator.tar").write_bytes(b"image")
    (tmp_path / "wheel").write_bytes(b"wheel")
    sums = write_checksums(tmp_path)
    assert write_checksums(tmp_path) == sums  # it does not list itself
    check = ["sha256sum", "--check", "--strict", sums.name]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / "wheel").write_bytes(b"other")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_the_list_of_an_image_has_its_installed_debian_packages() -> None:
    python = {"bom-ref": "requirements-L1", "name": "kopf"}
    sbom = {
        "metadata": {"component": {"name": "rlt-operator", "type": "application"}},
        "components": [python],
        "dependencies": [{"ref": "requirements-L1"}],
    }
    image = add_debian_packages(sbom, STATUS)
    assert image["metadata"]["component"] == {"name": "rlt-operator", "type": "container"}
    assert [component["name"] for component in image["components"]] == ["kopf", "libc6"]
    assert image["components"][1]["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64"
    assert {entry["ref"] for entry in image["dependencies"]} == {each["bom-ref"] for each in image["components"]}


def test_the_last_layer_with_a_package_status_counts(tmp_path: Path) -> None:
    layers = {
        "a.tar": write_tar({"var/lib/dpkg/status": b"old"}),
        "b.tar": write_tar({"var/lib/dpkg/status": STATUS.encode()}),
        "c.tar": write_tar({"opt/rlt": b""}),
    }
    image = tmp_path / "image.tar"
    image.write_bytes(write_tar({**layers, "manifest.json": json.dumps([{"Layers": list(layers)}]).encode()}))
    assert read_dpkg_status(image) == STATUS
    image.write_bytes(write_tar({"c.tar": layers["c.tar"], "manifest.json": b'[{"Layers": ["c.tar"]}]'}))
    with pytest.raises(ValueError, match="not based on Debian"):
        read_dpkg_status(image)
