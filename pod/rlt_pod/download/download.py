"""Download a model or data sets from the Hugging Face hub into the cache of the job's volume.

    python3 rlt_pod.pyz download NAME [--revision REVISION]
    python3 rlt_pod.pyz download --dataset NAME[@REVISION][:CONFIG] ...

Complete files are kept, and a partial file is continued where it ends. The folders are huggingface_hub's: trainer and
engine find the files there. Without a connection to the hub, an earlier download is enough. Exit code 1 with a sentence
if the download cannot succeed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import sys
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from rlt_pod.download.hub_files import Hub, HubError, HubFile, Repository, Source
from rlt_pod.report.download_report import format_progress

ENDPOINT = "https://huggingface.co"
CHUNK = 2**20
INTERVAL_S = 10.0
"""Time between two lines of progress."""
ATTEMPTS = 8
"""Connections in succession that deliver nothing, after which the download fails."""
MAX_DELAY_S = 30.0


class Progress:
    """Prints how much of all files exists, at most every INTERVAL_S."""

    def __init__(self, total: int) -> None:
        self.done = 0
        self._total = total
        self._printed = 0.0

    def add(self, size: int) -> None:
        """Count bytes."""
        self.done += size
        now = time.monotonic()
        if now - self._printed >= INTERVAL_S or self.done >= self._total:
            self._printed = now
            print(format_progress(self.done, self._total), flush=True)


def download(hub: Hub, source: Source, cache: Path) -> Path:
    """Download what is missing. Returns the folder of the files. Raises HubError, OSError.

    Jobs that share the volume download one after another: the later ones find the files.
    """
    folder = cache / source.folder
    try:
        repository = hub.read_repository(source)
    except OSError as error:
        if not (existing := _find_snapshot(folder, source)):
            raise
        print(f"The hub does not answer ({error}): the files of an earlier download are used.")
        return existing
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "rlt-download.lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        return _download_files(hub, repository, folder)


def _find_snapshot(folder: Path, source: Source) -> Path | None:
    """Find the folder of an earlier download. Its reference is written after its files."""
    reference = folder / "refs" / source.revision
    snapshot = folder / "snapshots" / (reference.read_text().strip() if reference.is_file() else "-")
    return snapshot if (snapshot / ("." if source.is_data_set else "config.json")).exists() else None


def _download_files(hub: Hub, repository: Repository, folder: Path) -> Path:
    snapshot = folder / "snapshots" / repository.commit
    progress = Progress(sum(file.size for file in repository.files))
    for file in repository.files:
        blob = folder / "blobs" / file.etag
        blob.parent.mkdir(parents=True, exist_ok=True)
        if not blob.exists():
            _fetch(hub, repository, file, blob, progress)
        else:
            progress.add(file.size)
        _link(snapshot / file.name, blob)
    reference = folder / "refs" / repository.source.revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(repository.commit)
    return snapshot


def _fetch(hub: Hub, repository: Repository, file: HubFile, blob: Path, progress: Progress) -> None:
    """Download a file to `blob`, from the end of its partial file on."""
    partial = blob.with_name(f"{blob.name}.rlt-partial")
    existing = partial.stat().st_size if partial.exists() else 0
    if existing > file.size:
        partial.unlink()
        existing = 0
    progress.add(existing)
    failures = 0
    while existing < file.size or not partial.exists():
        before = existing
        problem = ""
        try:
            existing = _append(hub, repository, file, partial, progress)
        except (OSError, HTTPException) as error:
            existing = partial.stat().st_size if partial.exists() else 0
            problem = str(error)
        failures = 0 if existing > before else failures + 1
        if failures >= ATTEMPTS:
            raise HubError(
                f"{repository.source.name}, file {file.name}: the hub delivers nothing: {problem}. Start it again."
            )
        if failures:
            time.sleep(min(MAX_DELAY_S, 0.5 * 2**failures))
    if file.is_large and _hash(partial) != file.etag:
        partial.unlink()
        raise HubError(f"{repository.source.name}, file {file.name}: its SHA-256 is wrong. Start the download again.")
    partial.replace(blob)


def _append(hub: Hub, repository: Repository, file: HubFile, partial: Path, progress: Progress) -> int:
    """Append what one connection delivers. Returns the size of the partial file."""
    start = partial.stat().st_size if partial.exists() else 0
    with hub.open_file(repository, file, start) as response, partial.open("ab") as target:
        if start and response.status != 206:
            progress.done -= start
            target.truncate(0)
        while chunk := response.read(CHUNK):
            target.write(chunk)
            progress.add(len(chunk))
    return partial.stat().st_size


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _link(link: Path, blob: Path) -> None:
    """Link a file of the snapshot to its content, as huggingface_hub does."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(blob, link.parent))


def find_cache() -> Path:
    """Return huggingface_hub's cache (constants.py)."""
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")


def parse_data_set(text: str) -> Source:
    """Parse NAME[@REVISION][:CONFIG]. Raises ValueError."""
    found = re.fullmatch(r"([^@:]+)(?:@([^:]+))?(?::(.+))?", text)
    if found is None:
        raise ValueError(text)
    return Source(found[1], found[2] or "main", is_data_set=True, config=found[3])


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="rlt_pod.pyz download")
    parser.add_argument("name", nargs="?", help="a model")
    parser.add_argument("--revision", default="main", help="of the model")
    parser.add_argument(
        "--dataset", action="append", default=[], type=parse_data_set, metavar="NAME[@REVISION][:CONFIG]"
    )
    options = parser.parse_args()
    sources = [*([Source(options.name, options.revision)] if options.name else []), *options.dataset]
    if not sources:
        parser.error("name a model or --dataset")
    hub = Hub(os.environ.get("HF_ENDPOINT") or ENDPOINT, os.environ.get("HF_TOKEN"))
    try:
        for source in sources:
            print(download(hub, source, find_cache()), flush=True)
    except (HubError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
