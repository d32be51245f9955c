"""Build a release into out/release/VERSION, and push its images and chart if a registry is given.

make release VERSION=0.1.0
make release VERSION=0.1.0 REGISTRY=registry.example.com/team HOMEPAGE=https://github.com/owner/rlt
"""

from __future__ import annotations

import shutil
from pathlib import Path

from release.archive import write_archive
from release.chart import NAME as CHART
from release.chart import package_chart
from release.checksums import write_checksums
from release.krew import write_plugin
from release.options import IMAGES, parse_options
from release.programs import COSIGN, CRANE, obtain_program
from release.registry import PushedImage, Registry
from release.sboms import write_image_sbom, write_python_sboms
from release.signatures import Signer
from release.source import Source, read_source
from release.wheels import build_wheels
from rlt_e2e.build_image import build_archive
from rlt_e2e.cluster.programs import obtain_helm
from rlt_e2e.cluster.stages import exit_with_message, stage
from rlt_e2e.environment import ROOT, VENV
from separate_environment import install


def main() -> None:
    options = parse_options()
    source = read_source(options.version, options.homepage)
    folder = ROOT / "out/release" / source.version
    log = ROOT / "out/logs/release.log"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log.unlink(missing_ok=True)
    tools = install("release").parent
    helm = obtain_helm()
    wheels = build_wheels(folder, source, tools, log)
    write_plugin(folder, source, next(wheel for wheel in wheels if wheel.name.startswith("rlt-")))
    write_python_sboms(folder, source, tools, log)
    write_documents(folder, source, log)
    archives = {name: build_image(folder, source, name) for name in options.images}
    registry = Registry(options.registry, obtain_program(CRANE), helm, log) if options.registry else None
    pushed = [push_image(registry, source, name, file) for name, file in archives.items()] if registry else []
    operator = next((image for image in pushed if image.repository.endswith("/rlt-operator")), None)
    chart = package_chart(folder, source, operator, helm, log)
    if registry:
        pushed.append(registry.push_chart(chart, CHART, source.version))
        (folder / "pushed.txt").write_text("".join(f"{image.pinned} {image.tag}\n" for image in pushed))
    checksums = write_checksums(folder)
    if options.key:
        signer = Signer(obtain_program(COSIGN), options.key, log)
        signer.sign_file(checksums)
        for image in pushed:
            signer.sign_image(image)
    print(f"release {source.version} of {source.revision[:12]} is in {folder.relative_to(ROOT)}")


def write_documents(folder: Path, source: Source, log: Path) -> None:
    """Write the notes, the CRDs as one file, and the documentation site."""
    (folder / "notes.md").write_text(source.notes)
    crds = "---\n".join(file.read_text() for file in sorted((ROOT / "crds").glob("*.yaml")))
    (folder / f"rlt-crds-{source.version}.yaml").write_text(crds)
    site = ROOT / "out/site"
    with stage("build the documentation site", estimate_s=5) as this:
        this.run([VENV / "bin/zensical", "build", "--strict", "--clean"], log=log, cwd=ROOT)
    write_archive(site, folder / f"rlt-docs-{source.version}.tar.gz", time=source.time)


def build_image(folder: Path, source: Source, name: str) -> Path:
    """Build an image and list its contents. Return its archive, in the folder `images`."""
    repository, suffix = IMAGES[name]
    opencontainers = {"version": source.version, "revision": source.revision, "source": source.homepage}
    labels = {f"org.opencontainers.image.{key}": value for key, value in opencontainers.items()}
    built = build_archive(name, reference=f"{repository}:{source.version}{suffix}", labels=labels)
    (folder / "images").mkdir(exist_ok=True)
    archive = folder / f"images/{repository}-{source.version}{suffix}.tar"
    shutil.move(built, archive)
    write_image_sbom(folder, f"{repository}{suffix}", source, archive)
    return archive


def push_image(registry: Registry, source: Source, name: str, archive: Path) -> PushedImage:
    """Push an image with the version as its tag."""
    repository, suffix = IMAGES[name]
    return registry.push_image(archive, repository, f"{source.version}{suffix}")


if __name__ == "__main__":
    with exit_with_message():
        main()
