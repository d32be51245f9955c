"""Pin the dependencies of each distribution: `python tools/compile_requirements.py`. `--check` fails on a missing pin.

Each package has one version: the operator and the tools use the trainer's pins as constraints. Existing pins are kept
if they still satisfy the requirements, so that runs are repeatable; delete a file to get the newest versions.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
HERE = ROOT / "requirements"

DISTRIBUTIONS = ("rlt", "rlt-pod", "rlt-api", "rlt-operator", "rlt-trainer")

OPTIONS = [
    *("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"),
    *(argument for name in DISTRIBUTIONS for argument in ("--no-emit-package", name)),
]

SOURCES: dict[str, list[str]] = {
    "trainer-cpu.txt": ["trainer/pyproject.toml", "--extra", "cpu", "--extra", "all"],
    "trainer-cuda.txt": ["trainer/pyproject.toml", "--extra", "cuda", "--extra", "all"],
    "operator.txt": ["operator/pyproject.toml", "--extra", "page", "--constraints", "trainer-cpu.txt"],
    "cli.txt": ["pyproject.toml", "--constraints", "trainer-cpu.txt", "--constraints", "operator.txt"],
    "dev.txt": [
        "--group",
        "dev",
        "--constraints",
        "trainer-cpu.txt",
        "--constraints",
        "operator.txt",
        "--constraints",
        "cli.txt",
    ],
    "verl-config.txt": ["--group", "verl-config", "--no-deps"],
    "verl-config-0-5.txt": ["--group", "verl-config-0-5", "--no-deps"],
    "verl-cpu.txt": ["--group", "verl-cpu", "--no-deps"],
    "openrlhf-options.txt": ["--group", "openrlhf-options", "--no-deps"],
    "agents.txt": ["--group", "agents"],
    "coding-agents.txt": ["--group", "coding-agents"],
    "harnesses.txt": ["--group", "harnesses"],
    "notebook.txt": ["--group", "notebook", "--constraints", "dev.txt"],
    "targets.txt": ["--group", "targets"],
    "release.txt": ["--group", "release"],
    "gpu-machine.txt": ["--group", "gpu-machine", "--no-config"],  # not the torch of the workspace
}
"""File -> arguments of `uv pip compile`. Constraint files come before the files that use them."""
PYTHON = {"gpu-machine.txt": "3.12"}
"""File -> the Python that its packages are for. Default: 3.11, the project's."""


def compile_into(folder: Path) -> None:
    """Write all requirement files to a folder, with the pins of existing ones."""
    for name, source in SOURCES.items():
        arguments = [str(folder / argument) if argument in SOURCES else argument for argument in source]
        python = PYTHON.get(name, "3.11")
        command = ["uv", "pip", "compile", *arguments, *OPTIONS, "--python-version", python]
        command += ["--output-file", str(folder / name)]
        subprocess.run([Path(sys.executable).parent / command[0], *command[1:]], check=True, cwd=ROOT)


def main() -> None:
    if "--check" not in sys.argv[1:]:
        compile_into(HERE)
        return
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        for name in SOURCES:
            shutil.copy(HERE / name, fresh / name)
        compile_into(fresh)
        stale = [name for name in SOURCES if (fresh / name).read_text() != (HERE / name).read_text()]
    if stale:
        sys.exit(f"requirements/{', '.join(stale)}: out of date. Run `make requirements` and commit the changes.")


if __name__ == "__main__":
    main()
