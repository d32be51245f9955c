"""An OCI image whose file system is the folder of a model, which Kubernetes can mount as an image volume.

Its layers are uncompressed tar archives without times and owners: the same files have the same digest.
https://github.com/opencontainers/image-spec/blob/v1.1.1/manifest.md
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_trainer.publishing.place import list_names

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CHUNK_BYTES = 2**20
LARGE_BYTES = 16 * 2**20
"""A larger file has a layer without others: later versions share the layers of files that are equal."""
MAX_LAYERS = 100
"""Docker accepts 127."""


@dataclass(frozen=True)
class Blob:
    """What a registry stores by its digest: a config, or a layer with files of a folder."""

    digest: str
    size: int
    source: bytes | tuple[Path, tuple[str, ...]]

    def read(self) -> Iterator[bytes]:
        """Yield the content in chunks."""
        if isinstance(self.source, bytes):
            yield self.source
        else:
            yield from _read_layer(*self.source)


@dataclass(frozen=True)
class Image:
    """An image. `blobs`: what the manifest refers to."""

    manifest: bytes
    blobs: tuple[Blob, ...]

    @property
    def digest(self) -> str:
        """The digest of the manifest, which is the image's."""
        return _name(self.manifest)


def build_image(folder: Path) -> Image:
    """Build the image of all files in a folder, each of which is read once."""
    sizes = {name: (folder / name).stat().st_size for name in list_names(folder)}
    layers = [_hash_layer(folder, names) for names in group_files(sizes)]
    config = {
        "architecture": "amd64",  # required, and not compared for an image without an index
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
    }
    content = json.dumps(config).encode()
    settings = Blob(_name(content), len(content), content)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _describe(settings, CONFIG_TYPE),
        "layers": [_describe(layer, LAYER_TYPE) for layer in layers],
    }
    return Image(json.dumps(manifest).encode(), (*layers, settings))


def group_files(sizes: dict[str, int]) -> list[tuple[str, ...]]:
    """Divide files among layers: the small ones in the last one, and the large ones evenly among at most MAX_LAYERS."""
    small = tuple(name for name, size in sizes.items() if size <= LARGE_BYTES)
    large = [name for name in sizes if name not in small]
    count = -(-len(large) // (MAX_LAYERS - 1))
    groups = [tuple(large[start : start + count]) for start in range(0, len(large), max(1, count))]
    return [*groups, *([small] if small else [])]


def _hash_layer(folder: Path, names: tuple[str, ...]) -> Blob:
    total = hashlib.sha256()
    size = 0
    for chunk in _read_layer(folder, names):
        total.update(chunk)
        size += len(chunk)
    return Blob(f"sha256:{total.hexdigest()}", size, (folder, names))


def _read_layer(folder: Path, names: tuple[str, ...]) -> Iterator[bytes]:
    """Yield a tar archive of the files, which all users can read."""
    for name in names:
        with (folder / name).open("rb") as file:
            entry = tarfile.TarInfo(name)
            entry.size = (folder / name).stat().st_size
            yield entry.tobuf(tarfile.GNU_FORMAT)  # USTAR ends at 8 GiB
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
        yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _describe(blob: Blob, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": blob.digest, "size": blob.size}


def _name(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
