"""Check the types of the tests with mypy, one folder after another: `python tools/check_test_types.py [FOLDER ...]`.

Modules of two folders may have the same name, such as conftest, and mypy accepts a name once in a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "charts/tests",
    "cli/tests",
    "client/tests",
    "core/tests",
    "api/tests",
    "e2e/tests",
    "operator/tests",
    "pod/tests",
    "tools/tests",
    "trainer/tests",
    "ui/tests",
)


def main() -> int:
    """Return 1 if a folder has an error, after the others have been checked."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    helpers = settings["tool"]["pytest"]["ini_options"]["pythonpath"]
    failed = False
    for folder in sys.argv[1:] or FOLDERS:
        environment = {**os.environ, "MYPYPATH": os.pathsep.join([folder, *helpers])}
        print(folder, flush=True)
        failed |= subprocess.run([sys.executable, "-m", "mypy", folder], cwd=ROOT, env=environment).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
