"""The images of a row: bytes, paths or URLs of files, in verl's format."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from PIL import Image

FOLDER = "images"
"""The folder of the run directory with images whose bytes are in the data."""


def read_images(value: object, location: str) -> tuple[bytes, ...]:
    """Return the encoded images of a row. `value` is one image or a list of them, None for a row without images.

    An image is its bytes, the path or file:// URL of a file, an image of the Hugging Face hub, or verl's {bytes, path}.
    Raises ValueError with `location` if an image is missing or does not decode.
    """
    return tuple(
        _read_image(image, f"{location}, image {number}") for number, image in enumerate(_list_images(value), start=1)
    )


def name_images(value: object, images: Sequence[bytes]) -> tuple[str, ...]:
    """Return a reference to each of a row's `images`: its file or URL in the data, or else a name in FOLDER, from
    its contents."""
    return tuple(
        _find_source(source) or f"{FOLDER}/{_name_contents(image)}"
        for source, image in zip(_list_images(value), images, strict=True)
    )


def decode_image(image: bytes) -> Image.Image:
    """Decode an image to RGB."""
    return Image.open(BytesIO(image)).convert("RGB")


def _list_images(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _find_source(value: Any) -> str | None:
    """Return the absolute path or the URL that an image is read from. None: the row has its bytes."""
    if isinstance(value, Mapping) and value.get("bytes") is None:
        value = value.get("path")
    if not isinstance(value, str):
        return None
    return value if urlsplit(value).scheme else str(Path(value).absolute())


def _name_contents(image: bytes) -> str:
    form = Image.open(BytesIO(image)).format or "image"
    return f"{hashlib.blake2b(image, digest_size=12).hexdigest()}.{form.lower()}"


def _read_image(value: Any, location: str) -> bytes:
    if isinstance(value, Mapping):
        value = value["bytes"] if value.get("bytes") is not None else value.get("path")
    if isinstance(value, Image.Image):  # from the hub
        buffer = BytesIO()
        value.save(buffer, "PNG")
        return buffer.getvalue()
    if isinstance(value, str):
        location = f"{location}, {value}"
        value = _read_file(value, location)
    if not isinstance(value, bytes):
        raise ValueError(
            f"{location} is {type(value).__name__}, not the bytes or the path of an image. Change data.imageKey or the "
            "data."
        )
    try:
        decode_image(value)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{location} does not decode: {error}. Replace the image or remove the row.") from error
    return value


def _read_file(name: str, location: str) -> bytes:
    url = urlsplit(name)
    if url.scheme in ("http", "https"):
        raise ValueError(f"{location}: images are not downloaded. Put the file on a volume, and set its path.")
    path = Path(unquote(url.path) if url.scheme == "file" else name)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"{location}: the file cannot be read ({error.strerror}). Put it on a volume: spec.storage mounts one in "
            "all pods."
        ) from error
