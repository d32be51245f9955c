"""The programs that a rendered job runs, and the known failures, as one archive for machines and images without rlt."""

from __future__ import annotations

import ast
import bz2
import io
import json
import re
import tomllib
import zipfile
from base64 import b85encode
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources

from rlt_core.children.programs import EPOCH, list_modules
from rlt_pod.__main__ import PROGRAMS

SUPERVISED = ("supervise", "run-command", "collect-logs", "dump-stacks", "diagnose")
"""The programs of every job: supervise starts the others."""
DIAGNOSIS = "rlt_core.knowledge.diagnosis"
"""The module that `rlt_pod.pyz diagnose` imports."""
KNOWLEDGE_FOLDER = "knowledge"
"""Folder of the archive that this program adds to its path."""
JSON_READER = '''"""Reads the JSON that replaces TOML in this folder: Python has tomllib since 3.11."""

from json import load, loads

__all__ = ["load", "loads"]
'''
MODULE = re.compile(r"rlt_pod([.]\w+)+")
LINE_LENGTH = 120
DECODER = (
    "import base64, bz2, sys; "
    'sys.stdout.buffer.write(bz2.decompress(base64.b85decode("".join(sys.stdin.read().split()))))'
)
"""A Python program, without apostrophes, that decodes an encoded archive from standard input."""


def encode_programs(names: Iterable[str]) -> str:
    """Encode the archive with these programs for DECODER, in lines."""
    text = b85encode(bz2.compress(build_programs_archive(frozenset(names)))).decode()
    return "\n".join(text[start : start + LINE_LENGTH] for start in range(0, len(text), LINE_LENGTH))


@cache
def build_programs_archive(names: frozenset[str]) -> bytes:
    """Build the zipapp with these programs of rlt_pod and the knowledge in a folder.

    The files are not compressed: all of them together compress better than each one.
    """
    main = resources.files("rlt_pod").joinpath("__main__.py").read_text("utf-8")
    programs = {"__main__.py": main, **_list_imported([PROGRAMS[name] for name in sorted(names)])}
    knowledge = {f"{KNOWLEDGE_FOLDER}/{path}": content for path, content in _list_knowledge().items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in {**programs, **knowledge}.items():
            archive.writestr(zipfile.ZipInfo(path, EPOCH), content, zipfile.ZIP_STORED)
    return buffer.getvalue()


def _list_knowledge() -> dict[str, str]:
    """Path -> content: the modules, the TOML files as JSON, and what reads them."""
    files = {"tomllib.py": JSON_READER, **_list_imported([DIAGNOSIS])}
    for path, source in sorted(list_modules(resources.files("rlt_core.knowledge"), "rlt_core/knowledge", (".toml",))):
        files[path] = json.dumps(tomllib.loads(source.decode()), ensure_ascii=False)
    return files


def _list_imported(modules: Collection[str]) -> dict[str, str]:
    """Path -> source of modules, of the modules of rlt that they import, and of their packages."""
    files: dict[str, str] = {}
    pending = list(modules)
    while pending:
        name = pending.pop()
        path = _find_path(name)
        if path is None or path in files:
            continue
        package = resources.files(name.partition(".")[0])
        files[path] = package.joinpath(path.partition("/")[2]).read_text("utf-8")
        pending += [name.rpartition(".")[0]] if "." in name else []
        pending += _find_imports(ast.parse(files[path]))
    return dict(sorted(files.items()))


def _find_imports(tree: ast.Module) -> list[str]:
    """The modules of rlt that a module imports at its top level, and modules of rlt_pod for import_module."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlt_"):
            found += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [*found, *filter(MODULE.fullmatch, texts)]


def _find_path(name: str) -> str | None:
    """The path of a module or package. None for another name, such as a function's."""
    package = resources.files(name.partition(".")[0])
    stem = name.replace(".", "/")
    paths = (f"{stem}.py", f"{stem}/__init__.py")
    return next((path for path in paths if package.joinpath(path.partition("/")[2]).is_file()), None)
