"""Objects of a bucket as files: ROOT/BUCKET/KEY, with a record of their ETags, resumed after a kill.

All objects of a location are downloaded before the first one gets its name. A file has its name only when it is
complete.
"""

from __future__ import annotations

import fcntl
import functools
import json
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from rlt_pod.download.bucket import ChangedError, Listed, Location, Server
from rlt_pod.download.hub_files import PATTERNS
from rlt_pod.download.transfer import DownloadError, Progress, fetch, retry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STATE = ".rlt-download"
"""Folder in ROOT with the locks, the records and the partial files."""
ROUNDS = 3
"""Lists of objects that change meanwhile, after which the download fails."""
NO_ANSWER = "Verify spec.storage.endpoint, and permit egress from the pods to it."
MARKS = {"model": "config.json", "checkpoint": "complete"}
"""What is downloaded -> the file that is uploaded last."""


@dataclass(frozen=True)
class Record:
    """What is known of the files at a location."""

    etags: Mapping[str, str]
    """Key -> ETag of each file that is in its place."""
    is_complete: bool
    """Whether these are all objects of a list."""


def select(location: Location, listed: Sequence[Listed], kind: str) -> list[Listed]:
    """Select the files that are read: of a model, those that are also read from the hub. Raises DownloadError.

    `kind`: model, data or checkpoint.
    """
    mark = MARKS.get(kind)
    if mark and all(each.key != f"{location.key}/{mark}" for each in listed):
        fix = f"Set {location.field} to the folder of a {kind}, after its upload."
        raise DownloadError(f"{location.url} has no {mark}, so that it is not a {kind}, or not yet complete.", fix)
    if kind != "model":
        return list(listed)
    return [each for each in listed if any(fnmatch(each.key, pattern) for pattern in PATTERNS)]


def download_objects(server: Server, location: Location, root: Path, kind: str) -> Path:
    """Download what is missing or has changed. Returns the path of the file or folder. Raises DownloadError, OSError.

    Jobs that share `root` download one after another: the later ones find the files. Without a connection to the
    server, an earlier download is used.
    """
    state = root / STATE
    state.mkdir(parents=True, exist_ok=True)
    target = root / location.bucket / location.key
    name = sha256(f"{location.bucket}/{location.key}".encode()).hexdigest()[:16]
    record = state / f"{name}.json"

    def read_list() -> list[Listed]:
        return select(location, retry(lambda: server.list_objects(location)), kind)

    with (state / f"{name}.lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            listed = read_list()
        except OSError as error:
            if not _read(record).is_complete:
                raise DownloadError(f"{location.url}: the server does not answer ({error}).", NO_ANSWER) from error
            print(f"{location.url}: the server does not answer ({error}): the files of an earlier download are used.")
            return target
        for _ in range(ROUNDS):
            partials = {each: state / f"{name}-{_name_partial(each)}" for each in listed}
            if _fetch_missing(server, location, root, _read(record), partials):
                before = listed
                listed = read_list()
                if listed == before:
                    _install(root / location.bucket, record, partials)
                    _remove_partials(state, name)
                    return target
            else:
                listed = read_list()
    raise DownloadError(f"{location.url}: its objects change while they are downloaded.", "Start it again after that.")


def _fetch_missing(
    server: Server, location: Location, root: Path, record: Record, partials: Mapping[Listed, Path]
) -> bool:
    """Fetch the objects whose file is missing or has another ETag. False: an object has changed since the list."""
    folder = root / location.bucket
    progress = Progress(sum(each.size for each in partials))
    for each, partial in partials.items():
        file = folder / each.key
        if record.etags.get(each.key) == each.etag and file.is_file() and file.stat().st_size == each.size:
            progress.add(each.size)
            continue
        try:
            request = functools.partial(server.open_object, location, each)
            fetch(request, partial, each.size, progress, f"{location.url}, object {each.key}")
        except ChangedError:
            return False
    return True


def _install(folder: Path, record: Path, partials: Mapping[Listed, Path]) -> None:
    """Give the partial files their names, and remove the files of objects that no longer exist."""
    earlier = _read(record)
    replaced = {each.key for each, partial in partials.items() if partial.exists()}
    listed = {each.key: each.etag for each in partials}
    kept = {key: etag for key, etag in earlier.etags.items() if key not in replaced}
    _write(record, Record(kept, is_complete=False))
    for key in earlier.etags.keys() - listed.keys():
        (folder / key).unlink(missing_ok=True)
    for each, partial in partials.items():
        if each.key in replaced:
            (folder / each.key).parent.mkdir(parents=True, exist_ok=True)
            partial.replace(folder / each.key)
    _write(record, Record(listed, is_complete=True))


def _name_partial(listed: Listed) -> str:
    """Name of the partial file: another one for other content."""
    return sha256(f"{listed.key}\n{listed.etag}".encode()).hexdigest()[:16]


def _remove_partials(state: Path, name: str) -> None:
    for partial in state.glob(f"{name}-*"):
        partial.unlink()


def _read(record: Path) -> Record:
    try:
        found = json.loads(record.read_text())
        return Record(dict(found["etags"]), bool(found["complete"]))
    except (OSError, ValueError, KeyError, TypeError):  # none, or half of one
        return Record({}, is_complete=False)


def _write(record: Path, content: Record) -> None:
    temporary = record.with_suffix(".new")
    temporary.write_text(json.dumps({"etags": dict(content.etags), "complete": content.is_complete}))
    temporary.replace(record)
