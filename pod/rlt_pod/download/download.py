"""Download models or data of the Hugging Face hub into the cache of the job's volume, or of a bucket into a folder.

    python3 rlt_pod.pyz download NAME [--revision REVISION]
    python3 rlt_pod.pyz download --dataset NAME[@REVISION][:CONFIG] ...
    python3 rlt_pod.pyz download --to ROOT [--endpoint URL] [--nodes=N] [--model|--data|--checkpoint FIELD=URL] ...

URL is s3://BUCKET/KEY. Complete files are kept, and a partial file is continued where it ends. Files of the hub are in
the folders where huggingface_hub finds them, and objects are at ROOT/BUCKET/KEY. Without a connection, an earlier
download is enough.
Exit code 1 with a sentence if the download cannot succeed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlt_pod.download import every_node
from rlt_pod.download.bucket import SCHEME, Location, Server
from rlt_pod.download.hub_files import Hub, HubFile, Repository, Source
from rlt_pod.download.objects import download_objects
from rlt_pod.download.transfer import CHUNK, DownloadError, Progress, fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("model", "data", "checkpoint")
"""What the objects of a location are."""
ENDPOINT = "https://huggingface.co"


def download(hub: Hub, source: Source, cache: Path) -> Path:
    """Download what is missing. Returns the folder of the files. Raises DownloadError, OSError.

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
    """Download a file to `blob`."""
    partial = blob.with_name(f"{blob.name}.rlt-partial")
    name = f"{repository.source.name}, file {file.name}"
    fetch(lambda start: hub.open_file(repository, file, start), partial, file.size, progress, name)
    if file.is_large and _hash(partial) != file.etag:
        partial.unlink()
        raise DownloadError(f"{name}: its SHA-256 is wrong.", "Start the download again.")
    partial.replace(blob)


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


def parse_location(text: str) -> Location:
    """Parse FIELD=s3://BUCKET/KEY. Raises ValueError."""
    field, _, url = text.partition("=")
    location = Location(field, url)
    if not url.startswith(SCHEME) or not location.key:
        raise ValueError(text)
    return location


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(prog="rlt_pod.pyz download")
    parser.add_argument("name", nargs="?", help="a model")
    parser.add_argument("--revision", default="main", help="of the model")
    parser.add_argument(
        "--dataset", action="append", default=[], type=parse_data_set, metavar="NAME[@REVISION][:CONFIG]"
    )
    for kind in KINDS:
        parser.add_argument(f"--{kind}", action="append", default=[], type=parse_location, metavar="FIELD=URL")
    parser.add_argument("--to", type=Path, metavar="ROOT", help="folder of the objects")
    parser.add_argument("--endpoint", help="URL of the bucket's server. Default: Amazon's S3")
    parser.add_argument("--nodes", type=int, default=1, help="nodes in Ray, each with its own disk")
    return parser


def download_all_objects(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Download the objects of all locations, with --nodes in all pods. Raises DownloadError, OSError."""
    others = [each for each in arguments if not each.startswith("--nodes")]
    tasks = every_node.start(others, options.nodes) if options.nodes > 1 else {}
    server = Server(options.endpoint)
    for kind in KINDS:
        for location in getattr(options, kind):
            print(download_objects(server, location, options.to, kind), flush=True)
    if tasks:
        every_node.join(tasks)


def main() -> int:
    """Run the program."""
    parser = build_parser()
    options = parser.parse_args()
    sources = [*([Source(options.name, options.revision)] if options.name else []), *options.dataset]
    if options.to is None and not sources:
        parser.error("name a model, --dataset or --to")
    hub = Hub(os.environ.get("HF_ENDPOINT") or ENDPOINT, os.environ.get("HF_TOKEN"))
    try:
        for source in sources:
            print(download(hub, source, find_cache()), flush=True)
        if options.to:
            download_all_objects(options, sys.argv[1:])
    except (DownloadError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
