"""Build an image from images/ into an archive in out/images: `python -m rlt_e2e.build_image NAME`, a name of IMAGES.

They are based on the Debian image of the embedded cluster: they need no image registry, only PyPI's and Debian's.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rlt_e2e.cluster import images
from rlt_e2e.cluster.stages import StageError, exit_with_message
from rlt_e2e.environment import ROOT
from rlt_e2e.installation import OPERATOR_IMAGE


class Image(NamedTuple):
    """What is built, and what that takes."""

    dockerfile: str
    target: str | None
    reference: str
    """The name of the image after loading."""
    free_gb: int
    """The disk space of layers and archive."""
    estimate_s: float
    """The time of a first build on two cores."""


IMAGES = {
    "operator": Image("operator.Dockerfile", None, f"{OPERATOR_IMAGE}:dev", 2, 60),
    "trainer-cpu": Image("trainer.Dockerfile", "cpu", images.TRAINER, 20, 300),
    "trainer-cuda": Image("trainer.Dockerfile", "cuda", "localhost/rlt-trainer:cuda", 35, 2700),
}


def main(name: str) -> None:
    """Build and archive one image for a cluster of the developer."""
    image = IMAGES[name]
    archive = build_archive(name, reference=image.reference)
    print(f"{image.reference} is in {archive.relative_to(ROOT)}")


def build_archive(name: str, *, reference: str, labels: Mapping[str, str] | None = None) -> Path:
    """Build one image and return its archive. `reference` is the name of the image after loading."""
    image = IMAGES[name]
    # In the store, images.TRAINER is the image of the embedded cluster, which has no Python environment.
    tag = f"localhost/rlt-built-{name}:latest"
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < image.free_gb:
        raise StageError(f"{ROOT} has {free:.0f} GB free and {image.free_gb} GB are required: free disk space")
    images.build_base()
    images.build_image(
        ROOT / "images" / image.dockerfile,
        context=ROOT,
        tag=tag,
        target=image.target,
        build_args={"BASE": images.BASE},
        labels=labels,
        estimate_s=image.estimate_s,
    )
    archive = ROOT / f"out/images/{name}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    images.archive(tag, reference=reference).replace(archive)
    return archive


if __name__ == "__main__":
    with exit_with_message():
        main(sys.argv[1])
