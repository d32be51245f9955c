"""The jobs that the arguments of a command select: names, files or labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from rlt.connection import Connection
from rlt_api.schema.crd import GROUP, KIND, PLURAL
from rlt_cli.file_arguments import list_files
from rlt_core.job import Manifest

TYPES = ("rltj", KIND.lower(), PLURAL, f"{KIND.lower()}.{GROUP}", f"{PLURAL}.{GROUP}")
"""Names of the resource in kubectl, which users type before a job's name."""


@dataclass(frozen=True)
class JobName:
    """A job that the user named."""

    name: str
    namespace: str | None = None
    """None: the namespace of the connection."""


def parse_names(words: Sequence[str], *, type_alone: bool = False) -> tuple[JobName, ...]:
    """The names of `NAME...`, and of kubectl's forms `rltj NAME...` and `rltj/NAME`. Raises UsageError.

    `type_alone`: another option selects the jobs, so that `rltj` alone is the type. Otherwise it is a job's name.
    """
    if words and words[0].lower() in TYPES and (type_alone or len(words) > 1):
        words = words[1:]
    names = []
    for word in words:
        kind, slash, name = word.rpartition("/")
        if slash and kind.lower() not in TYPES:
            raise click.UsageError(f"{word}: is not a job: use NAME or {TYPES[0]}/NAME")
        names.append(JobName(name))
    return tuple(dict.fromkeys(names))


def read_names(files: Sequence[str]) -> tuple[JobName, ...]:
    """The jobs in files, also in directories. Their specs are not validated. Raises UsageError without one."""
    from rlt.manifest_files import read_documents

    names = []
    for file in (path for each in files for path in list_files(each)):
        try:
            documents = read_documents(file)
        except OSError as error:
            raise click.UsageError(f"{file}: {error.strerror}") from error
        for document in documents:
            match document.manifest:
                case {"kind": "RLTrainingJob", "metadata": {"name": str(name)} as metadata}:
                    namespace = metadata.get("namespace")
                    names.append(JobName(name, namespace if isinstance(namespace, str) else None))
    if files and not names:
        raise click.UsageError(f"{', '.join(files)}: no RLTrainingJob with a name")
    return tuple(dict.fromkeys(names))


async def get_selected_jobs(connection: Connection, names: Sequence[JobName]) -> list[Manifest]:
    """The stored jobs. Raises NotFoundError for the first one that does not exist."""
    return [await connection.in_namespace(each.namespace).get_job(each.name) for each in names]
