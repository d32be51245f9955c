"""The programs that run in the pods, rlt_pod as one zipapp: an immutable ConfigMap for each namespace and version.

The name contains the digest of the archive. The jobs of a namespace share it, and it has no owner: the operator deletes
it when no job uses it.
"""

from __future__ import annotations

import io
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from rlt_api.spec.training_config import PROGRAMS_FILE
from rlt_core import names
from rlt_core.job import Manifest

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of all files, so that equal files give an equal archive. It is the first that a zip archive can have."""


@cache
def build_archive() -> bytes:
    """Build the zipapp from all modules of rlt_pod."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, source in sorted(list_modules(resources.files("rlt_pod"), "rlt_pod")):
            _add(archive, path, source)
            if path == "rlt_pod/__main__.py":
                _add(archive, "__main__.py", source)
    return buffer.getvalue()


@cache
def name_programs() -> str:
    """Return the ConfigMap's name for this version of the programs."""
    return names.programs(_digest(build_archive()))


def build_programs(namespace: str) -> Manifest:
    """Build the ConfigMap."""
    name = name_programs()
    labels = {names.PROGRAMS_LABEL: name, "app.kubernetes.io/managed-by": names.FIELD_OWNER}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "immutable": True,
        "binaryData": {PROGRAMS_FILE: b64encode(build_archive()).decode()},
    }


def is_programs(manifest: Manifest) -> bool:
    """Whether the object is such a ConfigMap, by its label."""
    return names.PROGRAMS_LABEL in manifest["metadata"].get("labels", {}) and manifest["kind"] == "ConfigMap"


def has_named_content(manifest: Manifest) -> bool:
    """Whether the content is the one that the name stands for, and cannot change."""
    archive = b64decode(manifest.get("binaryData", {}).get(PROGRAMS_FILE, ""))
    return manifest.get("immutable") is True and manifest["metadata"]["name"] == names.programs(_digest(archive))


def build_programs_source() -> Manifest:
    """Build the source in a projected volume."""
    return {"configMap": {"name": name_programs(), "items": [{"key": PROGRAMS_FILE, "path": PROGRAMS_FILE}]}}


def _digest(archive: bytes) -> str:
    return sha256(archive).hexdigest()[:12]


def _add(archive: zipfile.ZipFile, path: str, source: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(path, EPOCH), source, zipfile.ZIP_DEFLATED, 9)


def list_modules(folder: Traversable, path: str, suffixes: tuple[str, ...] = (".py",)) -> Iterator[tuple[str, bytes]]:
    """The path and content of each file below a package with one of the suffixes."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from list_modules(entry, f"{path}/{entry.name}", suffixes)
        elif entry.name.endswith(suffixes):
            yield f"{path}/{entry.name}", entry.read_bytes()
