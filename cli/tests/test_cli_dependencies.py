"""The CLI installs on a laptop: its dependencies cover its imports, without the operator's and trainer's."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from rlt_cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGES = {"pod": "rlt_pod", "api": "rlt_api", "core": "rlt_core", "client": "rlt", "ui": "rlt_ui", "cli": "rlt_cli"}
"""Directory -> package that `pip install .` installs."""
DISTRIBUTIONS = {"yaml": "pyyaml", "pydantic_core": "pydantic"}
"""Module -> distribution, where the names differ in more than an underscore."""
PRESENT_WHERE_USED = {"IPython"}
"""Modules that a package imports only in a process that has them: the kernel of a notebook."""
FORBIDDEN = ("rlt_operator", "rlt_trainer", "kopf", "prometheus_client", "torch", "ray", "vllm", "transformers")


def test_the_declared_dependencies_cover_the_imports() -> None:
    folders = [ROOT / directory / package for directory, package in PACKAGES.items()]
    assert list_imports(folders) == list_declared(ROOT / "pyproject.toml")


def test_the_pod_programs_have_no_dependencies_and_the_api_has_pydantic() -> None:
    assert list_imports([ROOT / "pod/rlt_pod"]) == list_declared(ROOT / "pod/pyproject.toml") == set()
    assert list_imports([ROOT / "api/rlt_api"]) | {"rlt-pod"} == list_declared(ROOT / "api/pyproject.toml")


def test_every_installed_package_is_typed() -> None:
    """Without py.typed, type checkers treat what a package exports as Any (PEP 561)."""
    assert [
        package for directory, package in PACKAGES.items() if not (ROOT / directory / package / "py.typed").exists()
    ] == []


def list_imports(packages: list[Path]) -> set[str]:
    """The distributions of other projects that packages import."""
    modules = {module for package in packages for path in package.rglob("*.py") for module in imported_modules(path)}
    modules -= {*sys.stdlib_module_names, *PRESENT_WHERE_USED, *PACKAGES.values()}
    return {DISTRIBUTIONS.get(module, module.replace("_", "-")) for module in modules}


def list_declared(file: Path) -> set[str]:
    """The distributions that a pyproject.toml declares, with its extras."""
    project = tomllib.loads(file.read_text())["project"]
    optional = project.get("optional-dependencies", {}).values()
    requirements = [*project["dependencies"], *(each for extra in optional for each in extra)]
    return {re.split("[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in requirements}


def imported_modules(path: Path) -> set[str]:
    """The top-level modules that a file imports anywhere."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_no_command_imports_the_operator_or_the_trainer() -> None:
    script = (
        f"import importlib, sys\n"
        f"for name in {list(COMMANDS)!r}: importlib.import_module('rlt_cli.commands.' + name)\n"
        f"print([name for name in {FORBIDDEN!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
