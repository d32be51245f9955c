"""Join the parts of the bundle: `python3 join.py [FOLDER]`. Needs Python alone.

Exit code 2: a part is missing or damaged, or the folder has other files. Nothing is written then.
"""

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PYTHON = (3, 12)


class Parts(io.RawIOBase):
    """The bytes of all parts, one after the other."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = [*files]
        self._current: Any = None

    def readable(self) -> bool:
        """A stream to read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read from the current part, or from the next one at its end."""
        while True:
            if self._current is None:
                if not self._files:
                    return 0
                self._current = self._files.pop(0).open("rb")
            if count := int(self._current.readinto(buffer)):
                return count
            self._current.close()
            self._current = None


def find_problem(manifest: dict[str, Any]) -> str | None:
    """Return a sentence about the first part that is missing or damaged; None if all are right."""
    for parts in manifest["archives"].values():
        for part in parts:
            file = HERE / part["name"]
            if not file.is_file():
                return f"{file} is missing: copy it beside join.py."
            if file.stat().st_size != part["bytes"]:
                return f"{file} has {file.stat().st_size} bytes, and {part['bytes']} are expected: copy it again."
            if hashlib.sha256(file.read_bytes()).hexdigest() != part["sha256"]:
                return f"The SHA-256 of {file} is not the one in manifest.json: copy it again."
    return None


def main() -> str | None:
    """Verify all parts, and replace the folder. Return a message if that is not possible."""
    if sys.version_info[:2] != PYTHON:
        found, needed = (".".join(map(str, version[:2])) for version in (sys.version_info, PYTHON))
        return f"This is Python {found}, and the packages of the bundle are for {needed}: use python{needed}."
    try:
        manifest = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{HERE / 'manifest.json'} cannot be read ({error}): copy it beside join.py."
    if problem := find_problem(manifest):
        return problem
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "rlt-gpu-check").resolve()
    if target.exists() and not (target / "COMMIT").is_file():
        return f"{target} exists and is not a joined bundle: name a folder that does not exist."
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for parts in manifest["archives"].values():
        stream = io.BufferedReader(Parts(HERE / part["name"] for part in parts), 2**20)
        with tarfile.open(fileobj=stream, mode="r|xz") as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4
            tar.extractall(partial)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(partial, target)
    print(f"Joined in {target}. Run the checks: sh {target}/run.sh")
    return None


if __name__ == "__main__":
    if message := main():
        print(message, file=sys.stderr)
        sys.exit(2)
