"""The parts of `make test-long` that passed, in out/test-long. The next start on the same files skips them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Passed:
    """A part that passed."""

    files: str
    """What `hash_files` returned for the files that it ran on."""
    tests: int
    seconds: float


def hash_files(root: Path, *, without: tuple[str, ...] = ()) -> str:
    """Return git's hash of all files below `root` that git does not ignore, committed or not, except for `without`.

    Raises ValueError with git's message outside of a git repository.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}

        def git(*arguments: str) -> str:
            outcome = subprocess.run(
                ["git", *arguments], cwd=root, env=environment, capture_output=True, text=True, errors="replace"
            )
            if outcome.returncode:
                raise ValueError(f"git {arguments[0]}: {outcome.stderr.strip()}")
            return outcome.stdout.strip()

        git("add", "--all", "--", ".", *(f":(exclude){path}" for path in without))
        return git("write-tree")


def record_passed(folder: Path, name: str, passed: Passed) -> None:
    """Record that a part passed."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{name}.draft"
    draft.write_text(json.dumps(asdict(passed)) + "\n")
    draft.replace(folder / f"{name}.json")


def read_passed(folder: Path, files: str) -> dict[str, Passed]:
    """Return the recorded parts that passed on these files, by name."""
    recorded = {file.stem: Passed(**json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))}
    return {name: passed for name, passed in recorded.items() if passed.files == files}
