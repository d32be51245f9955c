"""A copy of a run that is in a bucket: the objects that a command reads, as files of a run directory.

Keys, region and server come from the variables of Amazon's clients: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL_S3 and others. Checkpoints and exports are left out. The parts of a log are one file.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path

from rlt.errors import UnavailableError
from rlt.runs.directory import CONFIGS, ROLLOUTS, choose_rollouts_step, get_rollouts_step
from rlt.runs.suite_results import GATES
from rlt_pod.download.bucket import (
    FIXES,
    NO_KEYS,
    NO_OBJECTS,
    NO_S3,
    OTHER,
    ChangedError,
    Listed,
    Location,
    Server,
)
from rlt_pod.download.transfer import DownloadError, retry
from rlt_pod.report.step_history import CONTINUED, METRICS_FILE

Select = Callable[[Sequence[str]], Iterable[str]]
"""Selects the objects to copy by their names below the URL."""

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Variables with the URL of the server. Without them: Amazon's S3."""
LEFT_OUT = ("checkpoints", "export", "executions")
"""Folders of a run that no command reads."""
ATTEMPTS_FOLDER = "attempts"
"""Has the logs: attempts/N/LOG/PART."""
RECORDS = (*CONFIGS, METRICS_FILE, f"{METRICS_FILE}{CONTINUED}", GATES)
MAX_BYTES = 2**30
"""Maximum size of a copy. What exceeds it is left out, the rollouts of the first steps before others."""
MAX_NAMES = 8
"""Maximum number of runs in a message."""
TIMEOUT_S = 20.0
ATTEMPTS = 3
ROUNDS = 3
"""Lists of objects that are replaced meanwhile, after which the copy fails."""

KEYS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the keys of the bucket."
REGION = "The bucket is in another region: set AWS_REGION{region}."
SERVER = "Set AWS_ENDPOINT_URL_S3 to the URL of a server with the API of S3."
CLIENT_FIXES = {
    **dict.fromkeys(FIXES, KEYS),
    **dict.fromkeys(("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraint"), REGION),
    "NoSuchBucket": "Correct the bucket, or set AWS_ENDPOINT_URL_S3 to the URL of its server.",
    "AccessDenied": "Give the keys the right to list and read these objects.",
    "RequestTimeTooSkewed": "Synchronize the clock of this machine, or of the server (NTP).",
    NO_KEYS: KEYS,
    NO_OBJECTS: "Correct the URL: status.checkpoint.path of the job is the run's, with /checkpoints.",
    NO_S3: SERVER,
    OTHER: f"Verify the URL. {SERVER}",
}
"""Error code -> what to do on the user's machine."""


BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""The name of a bucket, which has no login."""


class BucketCopy:
    """The copy of a run, or of all runs in a folder, at a URL s3://BUCKET/PREFIX."""

    def __init__(self, url: str, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        """`folder`: an empty folder for the copy. Raises UnavailableError for an invalid URL."""
        self.url = url.rstrip("/")
        self._location = Location("the URL", self.url)
        if not BUCKET.fullmatch(self._location.bucket):
            message = "The URL has no name of a bucket: use s3://BUCKET/PREFIX, and AWS_* variables for the login."
            raise UnavailableError(message, next="aws s3 ls")
        if not self._location.key:
            raise UnavailableError(
                f"{url} has no prefix: use s3://BUCKET/PREFIX.", next=f"aws s3 ls {shlex.quote(url)}"
            )
        endpoint = next((environment[each] for each in ENDPOINTS if environment.get(each)), None)
        self._server = Server(endpoint, environment, TIMEOUT_S, CLIENT_FIXES)
        self._prefix = f"{self._location.key}/"
        self.path = folder / self._prefix.split("/")[-2]
        self._partial = folder / ".partial"
        self._parts = folder / ".parts"
        self._copied: dict[str, str] = {}
        """Name -> ETag."""
        self._changed: set[str | None] = set()
        """Logs with a part that was copied or removed since they were joined."""

    def update(self, select: Select) -> tuple[str, ...]:
        """Copy the selected objects that are new or have changed, and remove files whose objects are gone.

        Returns notes on what is left out. Raises UnavailableError.
        """
        try:
            for _ in range(ROUNDS):
                listed = self._list()
                names = set(select(list(listed)))
                wanted, notes = limit_size([each for name, each in listed.items() if name in names])
                self._remove(self._copied.keys() - listed.keys())
                if all(self._copy(each) for each in wanted):
                    self._join_parts()
                    return notes
            problem = f"{self.url}: its objects change while they are copied."
        except DownloadError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{self.url}: the server does not answer, or the copy cannot be written ({error}). {SERVER}"
        raise UnavailableError(problem, next=f"aws s3 ls {shlex.quote(self.url)}/")

    def _list(self) -> dict[str, Listed]:
        """The objects by their names below the URL."""
        found = retry(lambda: self._server.list_objects(self._location), ATTEMPTS)
        listed = {each.key.removeprefix(self._prefix): each for each in found if each.key.startswith(self._prefix)}
        return {name: each for name, each in listed.items() if not set(LEFT_OUT) & set(name.split("/")[:-1])}

    def _copy(self, listed: Listed) -> bool:
        """Copy an object unless its copy has its ETag. False: it has changed since the list."""
        name = listed.key.removeprefix(self._prefix)
        if self._copied.get(name) == listed.etag:
            return True
        try:
            retry(lambda: self._fetch(listed), ATTEMPTS)
        except ChangedError:
            return False
        file = self._locate(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._partial.replace(file)
        self._copied[name] = listed.etag
        self._changed.add(find_log(name))
        return True

    def _fetch(self, listed: Listed) -> None:
        """Write an object to a partial file, with the time of its upload."""
        try:
            with self._server.open_object(self._location, listed, 0) as response, self._partial.open("wb") as file:
                shutil.copyfileobj(response, file)
        except HTTPException as error:
            raise OSError(f"{error!r}") from error
        if self._partial.stat().st_size != listed.size:
            raise OSError(f"the answer for {listed.key} has another size than its object")
        if time := response.headers.get("Last-Modified"):
            seconds = parsedate_to_datetime(time).timestamp()
            os.utime(self._partial, (seconds, seconds))

    def _remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._locate(name).unlink(missing_ok=True)
            del self._copied[name]
            self._changed.add(find_log(name))

    def _locate(self, name: str) -> Path:
        return (self._parts if find_log(name) else self.path) / name

    def _join_parts(self) -> None:
        """Write the logs whose parts have changed, with the time of the last part."""
        for log in filter(None, self._changed):
            parts = sorted((self._parts / log).iterdir())
            with self._partial.open("wb") as file:
                for part in parts:
                    file.write(part.read_bytes())
            if parts:
                times = parts[-1].stat()
                os.utime(self._partial, (times.st_atime, times.st_mtime))
            (self.path / log).parent.mkdir(parents=True, exist_ok=True)
            self._partial.replace(self.path / log)
        self._changed.clear()


def find_log(name: str) -> str | None:
    """The log that an object is a part of, by its name. None: it is a whole file."""
    log, _, part = name.rpartition("/")
    return log if part and log.split("/")[-3:-2] == [ATTEMPTS_FOLDER] else None


def select_all(names: Sequence[str]) -> Sequence[str]:
    """All objects, also of several runs."""
    return names


def select_records(url: str) -> Select:
    """Config, metrics, gates and the latest rollouts of a run."""

    def select(names: Sequence[str]) -> list[str]:
        _require_run(url, names)
        return [*RECORDS, *(f"{ROLLOUTS}/step-{step}.jsonl" for step in _list_steps(names)[-1:])]

    return select


def select_step(url: str, step: int | None) -> Select:
    """The rollouts of one step, by default of the latest."""

    def select(names: Sequence[str]) -> list[str]:
        _require_run(url, names)
        return [f"{ROLLOUTS}/step-{choose_rollouts_step(url, _list_steps(names), step)}.jsonl"]

    return select


def select_logs(url: str, path: str | None) -> Select:
    """The log `path`, such as program.log of the latest attempt or 1/program.log of another. None: all logs."""

    def select(names: Sequence[str]) -> list[str]:
        logs = {name: log.split("/")[-2:] for name in names if (log := find_log(name))}
        if not logs:
            _require_run(url, names)
            raise UnavailableError(f"{url} has no logs.", next=f"rlt report {shlex.quote(url)}")
        attempt, _, file = (path or "").rpartition("/")
        attempt = attempt or max((number for number, _ in logs.values() if number.isdecimal()), key=int, default="1")
        return [name for name, found in logs.items() if path is None or found == [attempt, file]]

    return select


def _list_steps(names: Sequence[str]) -> list[int]:
    return sorted(step for name in names if (step := get_rollouts_step(name)) is not None)


def _require_run(url: str, names: Sequence[str]) -> None:
    """Raise UnavailableError unless the objects belong to one run."""
    if any(name in RECORDS or name.startswith(f"{ROLLOUTS}/") for name in names):
        return
    runs = sorted(name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == CONFIGS[0])
    below = f": it has the runs {', '.join(runs[:MAX_NAMES])}{' and others' * (len(runs) > MAX_NAMES)}" if runs else ""
    example = f"{url}/{runs[0] if runs else 'RUN'}"
    raise UnavailableError(f"{url} is not a run{below}.", next=f"rlt report {shlex.quote(example)}")


def limit_size(objects: Sequence[Listed]) -> tuple[list[Listed], tuple[str, ...]]:
    """The objects that fit in MAX_BYTES, and notes on the others. The rollouts of the latest steps precede earlier
    ones."""

    def rank(listed: Listed) -> int:
        return -(get_rollouts_step(listed.key) or sys.maxsize)

    kept: list[Listed] = []
    left = MAX_BYTES
    for each in sorted(objects, key=rank):
        if each.size <= left:
            kept.append(each)
            left -= each.size
    count = len(objects) - len(kept)
    note = f"{count} objects are not copied: at most {MAX_BYTES >> 20} MiB are."
    return kept, (note,) if count else ()
