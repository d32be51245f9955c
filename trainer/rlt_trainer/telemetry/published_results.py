"""The small files of a run directory in the bucket of the run: config, metrics, spans, responses and evaluations.

Objects cannot be appended to: a file that grows is put whole each time, with the condition that the object is the one
that this program has put before. A put of an earlier program that reaches the server late then replaces nothing. A
delete has no condition: files that the run directory has removed are deleted at the end, after the last checkpoint,
because a program that starts later does not write them again. Checkpoints and export are uploaded by the train workers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlt_pod.report.step_history import METRICS_FILE
from rlt_trainer.bucket.objects import BucketError, Objects
from rlt_trainer.data.images import FOLDER as IMAGES
from rlt_trainer.telemetry.bucket_lease import BucketLease
from rlt_trainer.telemetry.run_directory import EVALUATIONS, ROLLOUTS, SPANS

_log = logging.getLogger(__name__)

FILES = ("config.json", METRICS_FILE, SPANS)
FOLDERS = (ROLLOUTS, EVALUATIONS, IMAGES, "tensorboard")
CONTINUED = (METRICS_FILE, SPANS, f"{EVALUATIONS}/")
"""What a resumed run appends to or reads: it gets these from the bucket when it starts."""

ROUNDS = 3
"""Puts of a file whose object another program has replaced, after which the upload fails."""

State = dict[str, tuple[int, int]]
"""Path in the run directory -> size and time of the last change."""


class PublishedResults:
    """Uploads what has changed in a run directory since the last time, unless the lease is lost: LeaseLostError."""

    def __init__(self, objects: Objects, run: Path, lease: BucketLease | None = None) -> None:
        self.url = objects.url
        self.lease = lease
        self._objects = objects
        self._run = run
        self._uploaded: State = {}
        self._versions: dict[str, str | None] = {}
        """Versions of the objects that were put."""

    def restore(self) -> None:
        """Get what a resumed run continues. A file that an earlier program in this pod has left is newer, and kept.

        Raises BucketError.
        """
        for key in self._objects.list(""):
            file = self._run / key
            if key.startswith(CONTINUED) and not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                self._objects.get(key, file)
                self._uploaded |= _read_state(self._run, [file])

    def upload(self) -> None:
        """Upload what has changed. A failure is logged: the next upload repeats it."""
        try:
            self._upload()
        except (BucketError, OSError) as error:
            _log.warning("Results of the run were not uploaded: %s", error)

    @contextmanager
    def complete(self) -> Iterator[None]:
        """Upload the rest after the block, and delete what the run has removed.

        Raises BucketError, unless the block itself has raised an error.
        """
        try:
            yield
        except BaseException:
            self.upload()
            raise
        self._upload()
        self._objects.delete(self._uploaded.keys() - self._find().keys())

    def _upload(self) -> None:
        changed = sorted(self._find().items() - self._uploaded.items())
        if self.lease and changed:
            self.lease.check()
        for name, state in changed:
            self._put(name)
            self._uploaded[name] = state

    def _find(self) -> State:
        paths = [self._run / name for name in FILES]
        paths += [path for folder in FOLDERS for path in (self._run / folder).rglob("*")]
        return _read_state(self._run, paths)

    def _put(self, name: str) -> None:
        """Put a file. The object of an earlier program is replaced with the lease alone."""
        for _ in range(ROUNDS):
            content = (self._run / name).read_bytes()
            version = self._objects.put_if_same(name, content, self._versions.get(name))
            if version is not None:
                self._versions[name] = version
                return
            if self.lease:
                self.lease.check()
            self._versions[name] = self._objects.find_version(name)
        raise BucketError(
            f"{self.url}/{name} could not be written: another program replaces it again and again.",
            "Let one job alone use it.",
        )


def _read_state(run: Path, paths: list[Path]) -> State:
    stats = {str(path.relative_to(run)): path.stat() for path in paths if path.is_file() and path.suffix != ".partial"}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
