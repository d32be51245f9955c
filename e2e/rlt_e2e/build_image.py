"""Build an image from images/ into an archive in out/images: `python -m rlt_e2e.build_image NAME`, a name of IMAGES.

They are based on the Debian image of the embedded cluster: they need no image registry, only PyPI's and Debian's.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from rlt_e2e.cluster import images
from rlt_e2e.cluster.stages import StageError, exit_with_message
from rlt_e2e.environment import ROOT
from rlt_e2e.installation import OPERATOR_IMAGE

IMAGES = {
    "operator": ("operator.Dockerfile", None, f"{OPERATOR_IMAGE}:dev"),
    "trainer-cpu": ("trainer.Dockerfile", "cpu", images.TRAINER),
    "trainer-cuda": ("trainer.Dockerfile", "cuda", "localhost/rlt-trainer:cuda"),
}
"""Name -> Dockerfile, target, and name of the image after loading."""
FREE_GB = {"operator": 2, "trainer-cpu": 20, "trainer-cuda": 35}


def main(name: str) -> None:
    """Build and archive one image for a cluster of the developer."""
    reference = IMAGES[name][2]
    archive = build_archive(name, reference=reference)
    print(f"{reference} is in {archive.relative_to(ROOT)}")


def build_archive(name: str, *, reference: str, labels: Mapping[str, str] | None = None) -> Path:
    """Build one image and return its archive. `reference` is the name of the image after loading."""
    dockerfile, target, _ = IMAGES[name]
    # In the store, images.TRAINER is the image of the embedded cluster, which has no Python environment.
    tag = f"localhost/rlt-built-{name}:latest"
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < FREE_GB[name]:
        raise StageError(f"{ROOT} has {free:.0f} GB free and {FREE_GB[name]} GB are required: free disk space")
    images.build_base()
    images.build_image(
        ROOT / "images" / dockerfile,
        context=ROOT,
        tag=tag,
        target=target,
        build_args={"BASE": images.BASE},
        labels=labels,
    )
    archive = ROOT / f"out/images/{name}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    images.archive(tag, reference=reference).replace(archive)
    return archive


if __name__ == "__main__":
    with exit_with_message():
        main(sys.argv[1])
