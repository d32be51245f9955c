"""Whether models and data in a bucket can be read: the lists of their objects."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlt_pod.download.bucket import Location, Server
from rlt_pod.download.objects import NO_ANSWER, select
from rlt_pod.download.transfer import DownloadError, retry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rlt_pod.preflight.expected import ObjectPath

TIMEOUT_S = 10.0
ATTEMPTS = 2


@dataclass(frozen=True)
class ObjectProblem:
    """Why objects cannot be read, and what to do, as sentences."""

    problem: str
    fix: str
    is_certain: bool
    """Whether the download will fail. A server that does not respond may do so later."""


def find_object_problems(
    paths: Sequence[ObjectPath], endpoint: str | None, environment: Mapping[str, str]
) -> Iterator[ObjectProblem]:
    """Yield the problems of all paths."""
    server = Server(endpoint, environment, TIMEOUT_S)
    for path in paths:
        location = Location(path.field, path.url)
        try:
            select(location, retry(functools.partial(server.list_objects, location), ATTEMPTS), path.kind)
        except DownloadError as error:
            yield ObjectProblem(error.problem, error.fix, is_certain=True)
        except OSError as error:
            yield ObjectProblem(f"{path.url}: the server does not answer ({error}).", NO_ANSWER, is_certain=False)
