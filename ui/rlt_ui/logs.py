"""The ends of logs as the page shows them: which logs a run has, and their texts without control characters."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from rlt.connection import Connection, convert_api_errors
from rlt.errors import NotFoundError, RltError, UnavailableError
from rlt.pods import find_pod
from rlt.runs.records import get_log, list_logs
from rlt_api.findings.masking import mask_text
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_pod.read_attempts import find_files, read_end
from rlt_ui.source import Json

MAX_LOG_BYTES = 2**17
"""Size of a log's end."""
MAX_LOG_LINES = 2000
"""Number of lines that are read of a pod's log."""
POD = "pod"
PREVIOUS = "previous"
FILE = "file"
"""The three kinds of logs. An ID of a log is KIND/NAME."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Control sequences of terminals, such as colors (ECMA-48, section 5.4)."""
_OVERWRITTEN = re.compile(r"(?<![^\n\r])[^\n\r]*\r(?!\n)(?=[^\n])")
"""The text before a carriage return, which a progress bar overwrites."""


def clean(text: str, secrets: Collection[str]) -> Json:
    """The end of a log as JSON: its text without control sequences and with secrets masked, and whether it is cut."""
    text = _OVERWRITTEN.sub("", _ESCAPES.sub("", text))
    is_cut = len(text) > MAX_LOG_BYTES
    return {"text": mask_text(text[-MAX_LOG_BYTES:], secrets), "isCut": is_cut}


def describe_file(path: str) -> Json:
    """A log in the folder of an attempt."""
    attempt, _, name = path.partition("/")
    return {"id": f"{FILE}/{path}", "title": f"Attempt {attempt}: {name}"}


def list_files(run: Path) -> list[Json]:
    """The logs of a run directory, the latest attempt and its program first."""
    paths = [file.relative_to(run / "attempts").as_posix() for file in find_files(run / "attempts")]
    return [describe_file(path) for path in sort_files(paths)]


def sort_files(paths: Collection[str]) -> list[str]:
    """The paths NUMBER/NAME: the latest attempt first, and logs of its program before Ray's."""

    def rank(path: str) -> tuple[int, int, str]:
        number, _, name = path.partition("/")
        return -int(number) if number.isdigit() else 0, name.count("/"), name

    return sorted(paths, key=rank)


def read_file(run: Path, log: str) -> str:
    """The end of a log from `list_files`. The ID is only compared. Raises RltError."""
    folder = run / "attempts"
    for file in find_files(folder):
        if f"{FILE}/{file.relative_to(folder).as_posix()}" == log:
            try:
                return read_end(file, 2 * MAX_LOG_BYTES).decode(errors="replace")
            except OSError as error:
                raise UnavailableError(f"{file} cannot be read: {error.strerror}.", next=f"ls -l {file}") from error
    raise NotFoundError(f"The run has no log {log}.", next=f"ls {folder}")


async def list_job_logs(connection: Connection, name: str) -> Json:
    """The logs of a job's pods, and while its program runs the logs of all attempts. Raises ApiError."""
    logs: list[Json] = []
    for pod in await connection.list_pods(name):
        each = pod["metadata"]["name"]
        logs.append({"id": f"{POD}/{each}", "title": f"Pod {each}"})
        if any(status.get("restartCount") for status in pod.get("status", {}).get("containerStatuses", [])):
            logs.append({"id": f"{PREVIOUS}/{each}", "title": f"Pod {each} before its container restarted"})
    try:
        with convert_api_errors(connection.kube_context):  # without a right to the driver, the pods remain
            paths = await list_logs(connection, name)
    except RltError as error:
        note = f"Logs of attempts: {error.message} `rlt logs {name} --list` reads the volume."
        return {"logs": logs, "notes": [note]}
    return {"logs": [describe_file(path) for path in sort_files(paths)] + logs, "notes": []}


async def read_job_log(connection: Connection, name: str, log: str) -> str:
    """The end of a log from `list_job_logs`. Raises RltError, ApiError."""
    kind, _, path = log.partition("/")
    if kind == FILE:
        return await get_log(connection, name, path)
    if kind in (POD, PREVIOUS):
        return await _read_pod_log(connection, await find_pod(connection, name, path, None), previous=kind == PREVIOUS)
    raise NotFoundError(f"Job {name} has no log {log}.", next=f"rlt logs {name}")


async def _read_pod_log(connection: Connection, pod: Manifest, *, previous: bool) -> str:
    container = pod["spec"]["containers"][0]["name"]  # the Ray container in KubeRay's pods
    query = {"container": container, "tailLines": str(MAX_LOG_LINES), "previous": str(previous).lower()}
    path = api_paths.log(connection.namespace, pod["metadata"]["name"])
    return "".join([f"{line}\n" async for line in connection.api.stream_lines(path, query)])
