"""The plugin `kubectl rlt` for krew: an archive with the wheel and a program that installs it, and the manifest."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from release.archive import write_archive
from release.checksums import hash_file
from release.source import Source
from rlt_e2e.cluster.stages import stage
from rlt_e2e.environment import ROOT

LAUNCHER = Path(__file__).with_name("kubectl-rlt")
MANIFEST = "rlt.yaml"
"""krew requires the name of the plugin."""
DESCRIPTION = """\
Submits, follows, explains and diagnoses RLTrainingJobs: RL post-training of
language models. `kubectl rlt doctor` lists what a cluster has and lacks.
"""
CAVEATS = """\
Needs Python 3.11 or newer as python3, or in the variable RLT_PYTHON, with its
module venv. The first start installs the packages of the plugin from PyPI.
"""


class Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


Dumper.add_representer(
    str, lambda self, text: self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


def write_plugin(folder: Path, source: Source, wheel: Path) -> None:
    """Write the archive of the plugin and its manifest."""
    archive = folder / f"kubectl-rlt-{source.version}.tar.gz"
    with stage("write the krew plugin", estimate_s=1), TemporaryDirectory() as temporary:
        plugin = Path(temporary, "kubectl-rlt")
        plugin.mkdir()
        for file in (LAUNCHER, wheel, ROOT / "LICENSE"):
            shutil.copy(file, plugin)
        shutil.copy(ROOT / "requirements/cli.txt", plugin / "requirements.txt")
        write_archive(plugin, archive, time=source.time)
        manifest = build_manifest(source, f"{source.downloads}/{archive.name}", hash_file(archive))
        (folder / MANIFEST).write_text(yaml.dump(manifest, Dumper=Dumper, sort_keys=False))


def build_manifest(source: Source, uri: str, sha256: str) -> dict[str, Any]:
    """Build the manifest of the plugin, whose archive is at `uri`."""
    systems = {"key": "os", "operator": "In", "values": ["linux", "darwin"]}
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "rlt"},
        "spec": {
            "version": source.tag,
            "homepage": source.homepage,
            "shortDescription": "Run RL post-training jobs and see why they fail",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [
                {
                    "selector": {"matchExpressions": [systems]},
                    "uri": uri,
                    "sha256": sha256,
                    "bin": "kubectl-rlt/kubectl-rlt",
                }
            ],
        },
    }
