"""Lists of what the release contains, in the format CycloneDX: the Python packages of wheels and images, and the Debian
packages of images."""

from __future__ import annotations

import email
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from release.source import PROJECTS, Source
from rlt_e2e.cluster.stages import stage
from rlt_e2e.environment import ROOT

REQUIREMENTS = {
    "rlt": ("rlt", "cli"),
    "rlt-operator": ("rlt-operator", "operator"),
    "rlt-trainer-cpu": ("rlt-trainer", "trainer-cpu"),
    "rlt-trainer-cuda": ("rlt-trainer", "trainer-cuda"),
}
"""Name of the list -> distribution, and file of requirements/ with the pinned packages that the tests run with."""
SUFFIX = ".cdx.json"
DPKG_STATUS = "var/lib/dpkg/status"


def write_python_sboms(folder: Path, source: Source, tools: Path, log: Path) -> None:
    """Write a list for each file of requirements. `tools` is the folder of cyclonedx-py."""
    with stage("list the Python packages", estimate_s=20) as this:
        for name, (distribution, requirements) in REQUIREMENTS.items():
            command: list[str | Path] = [tools / "cyclonedx-py", "requirements"]
            command += ["--pyproject", ROOT / PROJECTS[distribution] / "pyproject.toml"]
            command += ["--output-reproducible", "--spec-version", "1.6"]
            target = python_sbom(folder, name, source)
            this.run([*command, "--output-file", target, ROOT / f"requirements/{requirements}.txt"], log=log)


def write_image_sbom(folder: Path, name: str, source: Source, archive: Path) -> Path:
    """Write the list of an image: the Python packages of its wheel, and the Debian packages in its archive."""
    sbom = json.loads(python_sbom(folder, name, source).read_text())
    target = folder / f"{name}-image-{source.version}{SUFFIX}"
    target.write_text(json.dumps(add_debian_packages(sbom, read_dpkg_status(archive)), indent=2) + "\n")
    return target


def python_sbom(folder: Path, name: str, source: Source) -> Path:
    """Return the path of the list `name`, without the packages of an image."""
    return folder / f"{name}-{source.version}{SUFFIX}"


def add_debian_packages(sbom: Mapping[str, Any], status: str) -> dict[str, Any]:
    """Return the list with the packages of dpkg's status file as well."""
    packages = list(list_debian_packages(status))
    container = {**sbom["metadata"]["component"], "type": "container"}
    return {
        **sbom,
        "metadata": {**sbom["metadata"], "component": container},
        "components": [*sbom["components"], *packages],
        "dependencies": [*sbom["dependencies"], *({"ref": package["bom-ref"]} for package in packages)],
    }


def list_debian_packages(status: str) -> Iterator[dict[str, str]]:
    """Yield a component for each installed package of dpkg's status file."""
    for paragraph in status.strip().split("\n\n"):
        fields = email.message_from_string(paragraph)
        if fields["Status"] != "install ok installed":
            continue
        version = quote(fields["Version"], safe="")
        purl = f"pkg:deb/debian/{fields['Package']}@{version}?arch={fields['Architecture']}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": fields["Package"],
            "version": fields["Version"],
            "purl": purl,
        }


def read_dpkg_status(archive: Path) -> str:
    """Return dpkg's status file of an image in a Docker archive: of the last layer that has it.

    Raises ValueError if no layer has it.
    """
    with tarfile.open(archive) as image:
        manifest = image.extractfile("manifest.json")
        assert manifest
        for layer in reversed(json.load(manifest)[0]["Layers"]):
            with tarfile.open(fileobj=image.extractfile(layer)) as files:
                if DPKG_STATUS in files.getnames() and (status := files.extractfile(DPKG_STATUS)):
                    return status.read().decode()
    raise ValueError(f"{archive}: no layer has {DPKG_STATUS}: the image is not based on Debian")
