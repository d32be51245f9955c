"""The images of a row: bytes, paths or URLs of files, in verl's format."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from PIL import Image


def read_images(value: object, location: str) -> tuple[bytes, ...]:
    """Return the encoded images of a row. `value` is one image or a list of them, None for a row without images.

    An image is its bytes, the path or file:// URL of a file, an image of the Hugging Face hub, or verl's {bytes, path}.
    Raises ValueError with `location` if an image is missing or does not decode.
    """
    if value is None:
        return ()
    each = value if isinstance(value, list) else [value]
    return tuple(_read_image(image, f"{location}, image {number}") for number, image in enumerate(each, start=1))


def decode_image(image: bytes) -> Image.Image:
    """Decode an image to RGB."""
    return Image.open(BytesIO(image)).convert("RGB")


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
