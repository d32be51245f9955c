"""The programs of pods and the known failures as one archive, for machines and images without rlt."""

from __future__ import annotations

import ast
import io
import json
import textwrap
import tomllib
import zipfile
from base64 import b64encode
from functools import cache
from importlib import resources

from rlt_core.children.programs import EPOCH, build_archive, list_modules

DIAGNOSIS = "rlt_core.knowledge.diagnosis"
"""The module that `rlt_pod.pyz diagnose` imports."""
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
    """Path -> content: the modules, the TOML files as JSON, and what reads them."""
    files = {"tomllib.py": JSON_READER, **_list_imported(DIAGNOSIS)}
    for path, source in list_modules(resources.files("rlt_core.knowledge"), "rlt_core/knowledge", (".toml",)):
        files[path] = json.dumps(tomllib.loads(source.decode()))
    return files


def _list_imported(module: str) -> dict[str, str]:
    """Path -> source of a module, of the modules of rlt that it imports at its top level, and of their packages."""
    files: dict[str, str] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        path = _find_path(name)
        if path is None or path in files:
            continue
        package = resources.files(name.partition(".")[0])
        files[path] = package.joinpath(path.partition("/")[2]).read_text("utf-8")
        pending += [name.rpartition(".")[0]] if "." in name else []
        for node in ast.parse(files[path]).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlt_"):
                pending += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return files


def _find_path(name: str) -> str | None:
    """The path of a module or package. None for another name, such as a function's."""
    package = resources.files(name.partition(".")[0])
    stem = name.replace(".", "/")
    paths = (f"{stem}.py", f"{stem}/__init__.py")
    return next((path for path in paths if package.joinpath(path.partition("/")[2]).is_file()), None)
