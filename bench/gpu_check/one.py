"""`python -m gpu_check.one NAME`: one check, in this process."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from gpu_check.figures import NOT_RUN, Figure, NotRun, append_figures
from gpu_check.plan import CHECKS
from gpu_check.settings import Settings


def main() -> None:
    """Run the check, and append its figures to the file as they are measured."""
    parser = argparse.ArgumentParser(prog="gpu_check.one", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=[check.name for check in CHECKS])
    parser.add_argument("--figures", type=Path, required=True)
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    check = import_module(f"gpu_check.checks.{arguments.name}")
    with tempfile.TemporaryDirectory(prefix="rlt-gpu-check-") as folder:
        try:
            append_figures(check.run(Settings(Path(folder), arguments.rehearse)), arguments.figures)
        except NotRun as reason:
            append_figures([Figure("not run", str(reason))], arguments.figures)
            sys.exit(NOT_RUN)


if __name__ == "__main__":
    main()
