"""Models in images: paths such as oci://registry.example.com/models/qwen3-8b:v1, which the pods mount as volumes.

In the resolved spec, which all later readers have, such a path is the folder of the mount.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlt_api.model import REGISTRY_URL
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import BLOCKS, list_places

IMAGE_SCHEME = "oci://"
ROOT = "/mnt/model-images"
"""Folder of the mounts. A mount is ROOT/IMAGE, with + in place of :, which the paths of mounts cannot contain."""
URL = re.compile(rf"{REGISTRY_URL}(@sha256:[0-9a-f]{{64}})?", re.ASCII)


def is_image_url(path: str) -> bool:
    """Whether the path names an image, with a tag, a digest or both."""
    return URL.fullmatch(path) is not None


def list_images(spec: RLTrainingJobSpec) -> list[str]:
    """List the images that the models of a resolved spec are in, without duplicates."""
    found = _find_models(spec.model_dump(mode="json", by_alias=True, include=BLOCKS))
    images = (path.removeprefix(f"{ROOT}/").replace("+", ":") for _, path in found if path.startswith(f"{ROOT}/"))
    return list(dict.fromkeys(image for image in images if is_image_url(f"{IMAGE_SCHEME}{image}")))


def find_mount(image: str) -> str:
    """Find the folder at which the pods mount an image."""
    return f"{ROOT}/{image.replace(':', '+')}"


def replace_by_mounts(resolved: Mapping[str, Any]) -> None:
    """Replace the images in a spec in JSON by the folders of their mounts."""
    for (owner, key), path in list(_find_models(resolved)):
        if path.startswith(IMAGE_SCHEME):
            owner[key] = find_mount(path.removeprefix(IMAGE_SCHEME))


def _find_models(spec: Mapping[str, Any]) -> list[tuple[tuple[Any, str | int], str]]:
    """Return owner, key and value of each model's path."""
    places = (((owner, key), owner[key]) for _, kind, owner, key in list_places(spec) if kind == "model")
    return [(place, path) for place, path in places if isinstance(path, str)]
