"""The programs of pods and the known failures as one archive, for machines and images without rlt."""

from __future__ import annotations

import io
import json
import textwrap
import tomllib
import zipfile
from base64 import b64encode
from functools import cache
from importlib import resources

from rlt_core.children.programs import EPOCH, build_archive, list_modules

KNOWLEDGE = ("rlt_core/knowledge", "rlt_api/findings/masking.py")
"""What `rlt_pod.pyz diagnose` imports: a package, and a module without further imports."""
KNOWLEDGE_FOLDER = "knowledge"
"""Folder of the archive that this program adds to its path."""
JSON_READER = '''"""Reads the JSON that replaces TOML in this folder: Python has tomllib since 3.11."""

from json import load, loads

__all__ = ["load", "loads"]
'''
LINE_LENGTH = 120


@cache
def encode_programs() -> str:
    """Encode the archive in base64, in lines."""
    return "\n".join(textwrap.wrap(b64encode(build_programs_archive()).decode(), LINE_LENGTH))


@cache
def build_programs_archive() -> bytes:
    """Build the zipapp of rlt_pod with the knowledge in a folder."""
    buffer = io.BytesIO(build_archive())
    with zipfile.ZipFile(buffer, "a") as archive:
        for path, content in _list_knowledge().items():
            entry = zipfile.ZipInfo(f"{KNOWLEDGE_FOLDER}/{path}", EPOCH)
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def _list_knowledge() -> dict[str, str]:
    """Path -> content."""
    files = {"tomllib.py": JSON_READER}
    for package in ("rlt_core", "rlt_api"):
        for path, source in list_modules(resources.files(package), package, suffixes=(".py", ".toml")):
            if path.startswith(KNOWLEDGE):
                text = source.decode()
                files[path] = json.dumps(tomllib.loads(text)) if path.endswith(".toml") else text
    packages = {path.rpartition("/")[0] for path in files if "/" in path and path.endswith(".py")}
    parents = {parent for package in packages for parent in _list_parents(package)}
    return {**{f"{parent}/__init__.py": "" for parent in sorted(parents)}, **files}


def _list_parents(package: str) -> list[str]:
    """The package and those around it."""
    parts = package.split("/")
    return ["/".join(parts[: index + 1]) for index in range(len(parts))]
