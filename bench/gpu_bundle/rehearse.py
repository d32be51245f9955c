"""`make gpu-check REHEARSE=1`: join the bundle, and run it on CPUs in an environment like the GPU machine's.

Exit code 2: Python 3.12 or the bundle is missing. Nothing is written then.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gpu_bundle.__main__ import BUNDLE, ROOT
from gpu_bundle.contents import PYTHON

FOLDER = ROOT / "out/gpu-rehearsal"
REQUIREMENTS = ROOT / "requirements/gpu-machine.txt"
VARIABLE = "PYTHON312"


def main(words: list[str]) -> int:
    """Rehearse with the arguments of gpu_check. Return its exit code."""
    python = os.environ.get(VARIABLE, f"python{PYTHON}")
    if problem := find_problem(python):
        print(problem, file=sys.stderr)
        return 2
    environment = FOLDER / "environment"
    ensure_environment(python, environment)
    interpreter = environment / "bin/python"
    joined = FOLDER / "joined"
    subprocess.run([interpreter, BUNDLE / "join.py", joined], check=True)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command: list[str | Path] = ["sh", joined / "run.sh", "--rehearse", *words]
    return subprocess.run(command, cwd=FOLDER, env=variables | {"PYTHON": str(interpreter)}, check=False).returncode


def find_problem(python: str) -> str | None:
    """Return what is missing, and how to get it; None if nothing is."""
    if not (BUNDLE / "join.py").exists():
        return f"{BUNDLE} does not exist: run `make gpu-bundle` first."
    try:
        found = subprocess.run([python, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        found = ""
    if not found.startswith(f"Python {PYTHON}."):
        return (
            f"{python} is {found or 'not a Python that runs'}, and the rehearsal needs Python {PYTHON}, as the bundle: "
            f"install it, or give its path in the environment variable {VARIABLE}."
        )
    return None


def ensure_environment(python: str, environment: Path) -> None:
    """Create the environment again if the requirements have changed. It takes 5 GB."""
    stamp = environment / "installed"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"installing {REQUIREMENTS.name} into {environment}", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", environment], check=True)
    uv = Path(sys.executable).parent / "uv"
    # Not the configuration of the workspace, which overrides torch.
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--no-config",
        "--quiet",
        "--python",
        environment / "bin/python",
        "--require-hashes",
    ]
    subprocess.run([*install, "--requirement", REQUIREMENTS], check=True)
    stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
