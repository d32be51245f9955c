"""The program of the pod that reads the kept files of a job from its volume (kept_files.py runs it with `python3 -c`).

    list DIRECTORY            one JSON object for each file below attempts/: path, size, time
    show DIRECTORY PATH SIZE  a JSON object with path, size and what is shown, then the last SIZE bytes of the file
    pack DIRECTORY SIZE       the ends of all files, as a compressed tar archive in base64
    records DIRECTORY SIZE    the same for config, metrics, scores of suites and the latest rollouts of the run

DIRECTORY is the run directory. PATH is relative to attempts/; without a number it is the latest attempt's. The
program has no imports outside of the standard library (Python 3.8 or later), because it runs in the image of the job.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import tarfile
import zlib
from pathlib import Path

MAX_PACKED_FILE_BYTES = 256 * 1024
"""Maximum size of a file in an archive of `pack`: its end."""
MAX_RECORD_BYTES = 16 * 1024 * 1024
"""The same for `records`. Compression makes metrics five times smaller."""


def main(arguments: list[str]) -> int:
    """Run a command. The exit code is 1 with a message if a file does not exist."""
    command, directory, *rest = arguments
    attempts = Path(directory, "attempts")
    try:
        if command == "list":
            list_files(attempts)
        elif command == "show":
            show_file(attempts, rest[0], int(rest[1]))
        elif command == "pack":
            pack_files(attempts, find_files(attempts), int(rest[0]), MAX_PACKED_FILE_BYTES)
        else:
            pack_files(Path(directory), find_records(Path(directory)), int(rest[0]), MAX_RECORD_BYTES)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}")
        return 1
    return 0


def find_files(attempts: Path) -> list[Path]:
    """The files of all attempts. Links are left out: they may lead out of the folder."""
    return sorted(file for file in attempts.rglob("*") if file.is_file() and not file.is_symlink())


def find_records(run: Path) -> list[Path]:
    """Config, metrics, scores of suites and the latest rollouts of a run."""
    numbered = [(file.stem[len("step-") :], file) for file in (run / "rollouts").glob("step-*.jsonl")]
    rollouts = sorted((int(number), file) for number, file in numbered if number.isdigit())
    files = [run / "config.json", run / "metrics.jsonl", run / "metrics.jsonl.1", *(file for _, file in rollouts[-1:])]
    files += sorted((run / "evaluation").glob("*/scores.json"))
    return [file for file in files if file.is_file() and not file.is_symlink()]


def list_files(attempts: Path) -> None:
    """Print the files."""
    for file in find_files(attempts):
        found = file.stat()
        path = file.relative_to(attempts).as_posix()
        print(json.dumps({"path": path, "size": found.st_size, "time": int(found.st_mtime)}))


def show_file(attempts: Path, path: str, size: int) -> None:
    """Print the end of a file, after a line that describes it."""
    path, total, content = read_file(attempts, path, size)
    print(json.dumps({"path": path, "size": total, "shown": len(content)}), flush=True)
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def read_file(attempts: Path, path: str, size: int) -> tuple[str, int, bytes]:
    """The whole path of a file, its size, and its end, with the end of the file that it continues (PATH.1)."""
    if not path.partition("/")[0].isdigit():
        path = f"{find_latest(attempts)}/{path}"
    file = attempts / path
    before = file.with_name(f"{file.name}.1")
    parts = [part for part in (before, file) if part.exists()] or [file]
    content = b"".join(read_end(part, size) for part in parts)[-size:]
    total = sum(part.stat().st_size for part in parts)
    return path, total, content


def find_latest(attempts: Path) -> str:
    """Number of the latest attempt. Raises FileNotFoundError."""
    return max((each.name for each in attempts.iterdir() if each.name.isdigit()), key=int, default="1")


def pack_files(folder: Path, files: list[Path], size: int, max_file: int) -> None:
    """Print an archive with the ends of the files, at most `max_file` bytes of each.

    What exceeds the size is left out, the oldest files first.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
            content = read_end(file, max_file)
            if buffer.tell() + len(zlib.compress(content)) > size:
                continue
            member = tarfile.TarInfo(file.relative_to(folder).as_posix())
            member.size = len(content)
            member.mtime = int(file.stat().st_mtime)
            archive.addfile(member, io.BytesIO(content))
    sys.stdout.write(base64.encodebytes(buffer.getvalue()).decode())


def read_end(file: Path, size: int) -> bytes:
    """The last bytes of a file."""
    with file.open("rb") as opened:
        opened.seek(max(0, opened.seek(0, 2) - size))
        return opened.read(size)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
