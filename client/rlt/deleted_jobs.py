"""Reads the usage of deleted jobs, which the operator keeps in its namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rlt.connection import Connection
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError
from rlt_core.usage_record import RECORD_LABEL, name_record, parse_record

FORBIDDEN = 403
OPERATOR_NAMESPACE = "rlt-system"
"""The namespace of the operator by default."""


async def list_deleted_jobs(
    connection: Connection, operator: str, notify: Callable[[str], None], *, all_namespaces: bool
) -> list[Manifest]:
    """The deleted jobs of the connection's namespace or of all, reduced to what their usage depends on.

    `operator`: the namespace of the operator. A record that cannot be read is left out and reported to `notify`. Raises
    ApiError if the API server does not answer.
    """
    try:
        if all_namespaces:
            records = await _list_records(connection, operator)
        else:
            found = await connection.api.get(api_paths.config_map(operator, name_record(connection.namespace)))
            records = [found] if found else []
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        notify(f"without deleted jobs, whose record in namespace {operator} cannot be read: {error}")
        return []
    return _parse_records(records, notify)


async def list_readable_deleted_jobs(
    connection: Connection, operator: str, namespaces: Iterable[str], notify: Callable[[str], None]
) -> list[Manifest]:
    """The deleted jobs of all namespaces if the user may list their records, else of these `namespaces`.

    See `list_deleted_jobs`.
    """
    try:
        return _parse_records(await _list_records(connection, operator), notify)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
    jobs: list[Manifest] = []
    for each in namespaces:
        jobs += await list_deleted_jobs(connection.in_namespace(each), operator, notify, all_namespaces=False)
    return jobs


async def _list_records(connection: Connection, operator: str) -> list[Manifest]:
    return await connection.api.list(api_paths.config_maps(operator), labelSelector=RECORD_LABEL)


def _parse_records(records: Iterable[Manifest], notify: Callable[[str], None]) -> list[Manifest]:
    jobs: list[Manifest] = []
    for record in records:
        try:
            jobs += parse_record(record)
        except ValueError as error:
            notify(f"without deleted jobs: {error}")
    return jobs
