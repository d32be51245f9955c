"""A prefix in a bucket for one model. A plan claims it, and a marker is written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rlt_trainer.bucket.check import abort_leftovers, check_bucket
from rlt_trainer.bucket.objects import BucketError, Objects
from rlt_trainer.publishing.place import PublishError, list_names

PLAN = "rlt-publication.json"
"""Names the run that has the prefix, and the files that it uploads. Written first, if the prefix is empty."""
MARK = "rlt-published.json"
"""The same content after the last file."""


@dataclass(frozen=True)
class Plan:
    """The files of a model."""

    run: str
    """Namespace and name of the run directory."""
    revision: str
    sizes: Mapping[str, int]
    """Name of a file -> size in bytes."""

    def to_bytes(self) -> bytes:
        """The content of PLAN and MARK."""
        return (json.dumps(asdict(self), indent=1) + "\n").encode()


class BucketPrefix:
    """A prefix for the models of one run. `field` is its field in the spec."""

    def __init__(self, objects: Objects, run: str, field: str) -> None:
        self.url = objects.url
        self._objects = objects
        self._run = run
        self._field = field

    def check(self) -> None:
        """Write and delete an object, and verify that the prefix is empty or this run's."""
        with self._explain():
            self._read_plan(self._objects.list(""))
            check_bucket(self._objects)

    def publish(self, folder: Path) -> str:
        """Upload what is missing, and then the marker. Return the digest of the files."""
        objects = self._objects
        names = list_names(folder)
        plan = Plan(self._run, _digest(folder, names), {name: (folder / name).stat().st_size for name in names})
        with self._explain():
            abort_leftovers(objects)
            found = objects.list("")
            earlier = self._read_plan(found)
            if earlier and earlier.revision == plan.revision and MARK in found:
                return plan.revision
            if earlier and earlier.revision != plan.revision:
                objects.delete({MARK} & found.keys())
                objects.delete(earlier.sizes.keys() & found.keys())
                found = {}
                self._replace_plan(plan)
            elif not objects.put_if_absent(PLAN, plan.to_bytes()):
                raise self._reject("another run has taken it a moment ago")
            for name, size in plan.sizes.items():
                if found.get(name) != size:  # an object has all bytes or does not exist
                    objects.put(name, folder / name)
            objects.put_if_absent(MARK, plan.to_bytes())
        return plan.revision

    def _replace_plan(self, plan: Plan) -> None:
        """Write the plan over the earlier one: without a plan, a prefix with other objects is not this run's."""
        with TemporaryDirectory() as scratch:
            file = Path(scratch) / PLAN
            file.write_bytes(plan.to_bytes())
            self._objects.put(PLAN, file)

    def _read_plan(self, found: Mapping[str, int]) -> Plan | None:
        """Read the plan of this run. None: the prefix is empty. Raises PublishError if it has other objects."""
        content = self._objects.read(PLAN)
        if content is None:
            if found:
                raise self._reject(f"has objects of another origin, such as {min(found)}")
            return None
        try:
            plan = Plan(**json.loads(content))
        except (ValueError, TypeError):
            raise self._reject(f"its {PLAN} is damaged") from None
        if plan.run != self._run:
            raise self._reject(f"belongs to the run {plan.run}")
        return plan

    @contextmanager
    def _explain(self) -> Iterator[None]:
        """Raise PublishError for errors of the server, whose advice is about spec.storage."""
        try:
            yield
        except BucketError as error:
            fix = error.fix.replace("spec.storage", self._field.removesuffix(".bucket")).rstrip(".")
            raise PublishError(self._field, self.url, error.problem.rstrip("."), fix[:1].lower() + fix[1:]) from None

    def _reject(self, problem: str) -> PublishError:
        fix = "use another prefix, or delete the objects below it"
        return PublishError(self._field, self.url, problem, fix)


def _digest(folder: Path, names: list[str]) -> str:
    """SHA-256 of the names and the SHA-256 digests of the files."""
    total = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            total.update(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n".encode())
    return total.hexdigest()
