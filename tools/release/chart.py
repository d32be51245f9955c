"""The chart of a release: links, icon and annotations for chart catalogs, and the image that its values name."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from release.archive import write_archive
from release.registry import PushedImage
from release.source import Source
from rlt_e2e.cluster.stages import stage
from rlt_e2e.environment import ROOT

NAME = "rlt-operator"
FOLDER = ROOT / "charts" / NAME
ICON = "ui/rlt_ui/static/icon.svg"


def package_chart(target: Path, source: Source, image: PushedImage | None, helm: Path, log: Path) -> Path:
    """Write the archive of the chart into the folder `target`, and return it.

    With an image, the values name it by digest. Without one, the user sets `image.repository`.
    """
    with stage("package the chart", estimate_s=2) as this, TemporaryDirectory() as temporary:
        draft = Path(temporary, NAME)
        shutil.copytree(FOLDER, draft)
        complete_files(draft, source, image)
        this.run([helm, "lint", "--strict", draft], log=log)
        this.run([helm, "package", draft, "--destination", temporary], log=log)
        # Helm writes the time of the packaging into its archive.
        packaged = Path(temporary, f"{NAME}-{source.version}.tgz")
        unpacked = Path(temporary, "unpacked")
        with tarfile.open(packaged) as archive:
            archive.extractall(unpacked)
        write_archive(unpacked / NAME, target / packaged.name, time=source.time)
        return target / packaged.name


def complete_files(folder: Path, source: Source, image: PushedImage | None) -> None:
    """Add the links, the icon and the image to a copy of the chart."""
    for name, text in {
        "Chart.yaml": complete_metadata((folder / "Chart.yaml").read_text(), source, image),
        "values.yaml": complete_values((folder / "values.yaml").read_text(), source, image),
        "README.md": make_links_absolute((folder / "README.md").read_text(), source),
    }.items():
        (folder / name).write_text(text)


def complete_metadata(text: str, source: Source, image: PushedImage | None) -> str:
    """Return Chart.yaml with the addresses of the repository, the icon, and the image by digest."""
    chart = yaml.safe_load(text)
    links = [{"name": "Documentation", "url": f"{source.pages}/docs/index.md"}]
    annotations = {**chart["annotations"], "artifacthub.io/links": yaml.safe_dump(links, sort_keys=False)}
    if image:
        images = [{"name": NAME, "image": image.pinned}]
        annotations["artifacthub.io/images"] = yaml.safe_dump(images, sort_keys=False)
    added = {
        "home": source.homepage,
        "sources": [source.homepage],
        "icon": f"{source.homepage}/raw/{source.tag}/{ICON}",
        "annotations": annotations,
    }
    return yaml.safe_dump({**chart, **added}, sort_keys=False)


def complete_values(text: str, source: Source, image: PushedImage | None) -> str:
    """Return values.yaml with the image by digest, and the address of the runbooks. Comments stay."""
    changed = {r"runbooks: docs/runbooks\.md": f"runbooks: {source.pages}/docs/runbooks.md"}
    if image:
        changed |= {r"repository: rlt-operator": f"repository: {image.repository}"}
        changed |= {r'digest: ""': f"digest: {image.digest}"}
    for before, after in changed.items():
        text, count = re.subn(rf"^(  ){before}$", rf"\g<1>{after}", text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"values.yaml has {count} lines `{before}`, not one: change tools/release/chart.py")
    return text


def make_links_absolute(text: str, source: Source) -> str:
    """Return a page of the chart whose links lead to the pages of the tag."""

    def replace(match: re.Match[str]) -> str:
        path = match[1]
        inside = f"charts/{NAME}/{path}"
        return f"]({source.pages}/{path.removeprefix('../../') if path.startswith('../../') else inside})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", replace, text)
