"""The CLI installs on a laptop: its dependencies cover its imports, without those of operator and trainer."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rlt_cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGES = {"pod": "rlt_pod", "api": "rlt_api", "core": "rlt_core", "client": "rlt", "ui": "rlt_ui", "cli": "rlt_cli"}
"""Directory -> package of each distribution that `pip install rlt-cli[ui]` installs from this repository."""
DISTRIBUTIONS = {"rlt": "rlt-client", "yaml": "pyyaml", "pydantic_core": "pydantic"}
"""Module -> distribution, where the names differ in more than an underscore."""
PRESENT_WHERE_USED = {"IPython"}
"""Modules that a package imports only in a process that has them: the kernel of a notebook."""
FORBIDDEN = ("rlt_operator", "rlt_trainer", "kopf", "prometheus_client", "torch", "ray", "vllm", "transformers")


@pytest.mark.parametrize("directory", PACKAGES)
def test_the_declared_dependencies_cover_the_imports(directory: str) -> None:
    package = PACKAGES[directory]
    modules = {module for path in (ROOT / directory / package).rglob("*.py") for module in imported_modules(path)}
    modules -= {*sys.stdlib_module_names, *PRESENT_WHERE_USED, package}
    project = tomllib.loads((ROOT / directory / "pyproject.toml").read_text())["project"]
    optional = project.get("optional-dependencies", {}).values()
    requirements = [*project["dependencies"], *(each for extra in optional for each in extra)]
    declared = {re.split("[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in requirements}
    assert {DISTRIBUTIONS.get(module, module.replace("_", "-")) for module in modules} == declared


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
