"""The files of a job's attempts that outlive its pods, read by a short-lived pod that mounts the volume read-only.

The volume of a job is reachable from pods alone. The pod has the image, the user and the placement of the job's head,
meets the Pod Security Standard `restricted`, and is created with the permissions of the user.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rlt.bucket_results import LOGS, describe_bucket
from rlt.connection import Connection
from rlt.errors import UnavailableError
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.attempt_directory import build_attempt_directory
from rlt_core.children.placement import build_tolerations
from rlt_core.children.pod_template import build_security_context, build_storage_source
from rlt_core.job import Job, Manifest, parse_job
from rlt_core.kubernetes import api_paths
from rlt_pod import read_attempts as attempt_reader

MAX_BYTES = 8 * 2**20
"""Maximum size of a pod's output: the kubelet rotates logs at 10 MiB (containerLogMaxSize)."""
MAX_ARCHIVE_BYTES = 5 * 2**20
"""Maximum size of an archive, which base64 makes a third larger."""
TIMEOUT_S = 180
"""Time for the pod to start and end. The pod ends by itself after this time (activeDeadlineSeconds)."""


@dataclass(frozen=True)
class KeptFile:
    """A file of an attempt."""

    path: str
    """Relative to the folder attempts/ of the run directory."""
    size: int
    time: int
    """Unix time of the last change."""


@dataclass(frozen=True)
class Text:
    """The end of a file."""

    path: str
    size: int
    """Size of the file in bytes."""
    shown: int
    """Size of the file's end in `text`."""
    text: str


async def list_kept_files(connection: Connection, name: str) -> list[KeptFile]:
    """The files of all a job's attempts. Raises RltError."""
    lines = (await _read(connection, name, "list")).splitlines()
    return [KeptFile(**json.loads(line)) for line in lines]


async def read_kept_file(connection: Connection, name: str, path: str) -> Text:
    """A file of an attempt. A path without a number belongs to the latest attempt. Raises RltError."""
    output = await _read(connection, name, "show", path, str(MAX_BYTES))
    heading, _, text = output.partition("\n")
    found = json.loads(heading)
    return Text(found["path"], found["size"], found["shown"], text)


async def read_archive(connection: Connection, name: str) -> str:
    """The files of all attempts as a compressed tar archive in base64. Raises RltError."""
    return await _read(connection, name, "pack", str(MAX_ARCHIVE_BYTES))


async def read_records(connection: Connection, name: str) -> str:
    """Config, metrics and the latest rollouts of a job, as `read_archive`. Raises RltError."""
    return await _read(connection, name, "records", str(MAX_ARCHIVE_BYTES))


def list_local_files(run: Path) -> list[KeptFile]:
    """The files of all attempts in a run directory."""
    attempts = run / "attempts"
    stats = [(file.relative_to(attempts).as_posix(), file.stat()) for file in attempt_reader.find_files(attempts)]
    return [KeptFile(path, found.st_size, int(found.st_mtime)) for path, found in stats]


def read_local_file(run: Path, path: str) -> Text:
    """`read_kept_file` of a run directory."""
    try:
        path, size, content = attempt_reader.read_file(run / "attempts", path, MAX_BYTES)
    except OSError as error:
        raise UnavailableError(
            f"The run has no kept file {path} ({error.strerror}).", next="rlt logs DIRECTORY --list"
        ) from error
    return Text(path, size, len(content), content.decode(errors="replace"))


def has_kept_files(job: Manifest) -> bool:
    """Whether the program of the job or a step before it has run, and has a volume for its log."""
    parsed = parse_job(job)
    started = bool(parsed.status.start_time or parsed.status.attempts or parsed.status.prepared)
    return started and parsed.spec is not None and build_attempt_directory(parsed, parsed.spec) is not None


def build_reader_pod(job: Job, spec: RLTrainingJobSpec, *arguments: str) -> Manifest:
    """Build the pod."""
    directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    mount = names.mount_path(spec)
    command, *rest = arguments
    amounts = {"cpu": "100m", "memory": "256Mi"}
    storage = build_storage_source(job, spec.storage)
    container = {
        "name": "reader",
        "image": spec.cluster.image,
        "imagePullPolicy": spec.cluster.image_pull_policy,
        "command": ["python3", "-c", inspect.getsource(attempt_reader), command, directory, *rest],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "storage", "mountPath": mount, "readOnly": True}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{job.name}-logs-", "namespace": job.namespace},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": TIMEOUT_S,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": build_security_context(spec),
            "imagePullSecrets": [{"name": secret} for secret in spec.cluster.image_pull_secrets],
            "nodeSelector": dict(spec.cluster.head.node_selector),
            "tolerations": build_tolerations(spec.cluster.head.tolerations),
            "containers": [container],
            "volumes": [{"name": "storage", **storage}],
        },
    }


async def _read(connection: Connection, name: str, *arguments: str) -> str:
    """The output of attempt_reader.py. Raises RltError if the job has no volume or the pod does not succeed."""
    status_command = connection.kube_context.command_line(f"status {name}")
    manifest = await connection.api.get(api_paths.job(connection.namespace, name))
    if manifest is None:
        manifest = await connection.get_job(name)  # raises NotFoundError
    job = parse_job(manifest)
    if job.spec is None:
        raise UnavailableError(f"The spec of job {name} is invalid.", next=status_command)
    if build_attempt_directory(job, job.spec) is None:
        bucket = describe_bucket(manifest, *LOGS)
        ended = "are in its bucket." if bucket else "ended with its pods: spec.storage has no PVC."
        message = f"The logs of job {name} {ended}{bucket}"
        raise UnavailableError(message, next=status_command)
    async with _run_pod(connection, build_reader_pod(job, job.spec, *arguments)) as pod:
        path = api_paths.log(connection.namespace, pod["metadata"]["name"])
        output = "".join([f"{line}\n" async for line in connection.api.stream_lines(path, {})])
        if pod["status"]["phase"] != "Succeeded":
            raise UnavailableError(
                f"The logs of job {name} cannot be read: {output.strip()[-500:]}.", next=status_command
            )
        return output


@asynccontextmanager
async def _run_pod(connection: Connection, manifest: Manifest) -> AsyncIterator[Manifest]:
    """Create the pod, yield it when it has ended, and delete it, also on Ctrl-C."""
    pods = api_paths.pods(connection.namespace)
    pod = await connection.api.create(pods, manifest)
    try:
        yield await _await_end(connection, pod)
    finally:
        metadata = pod["metadata"]
        await connection.api.delete(f"{pods}/{metadata['name']}", uid=metadata["uid"])


async def _await_end(connection: Connection, pod: Manifest) -> Manifest:
    """Wait until the pod has ended. Raises RltError with what it waits for."""
    name = pod["metadata"]["name"]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                which = {"fieldSelector": f"metadata.name={name}"}
                async for _, pod in connection.api.watch(api_paths.pods(connection.namespace), **which):
                    if pod["status"].get("phase") in ("Succeeded", "Failed"):
                        return pod
    except TimeoutError:
        message = f"Pod {name}, which reads the volume, has not ended within {TIMEOUT_S} s: {_describe(pod)}."
        raise UnavailableError(message, next=connection.kube_context.command_line("get")) from None


def _describe(pod: Manifest) -> str:
    """What the pod waits for, by the scheduler or the kubelet."""
    status = pod.get("status", {})
    waiting = [each.get("state", {}).get("waiting", {}) for each in status.get("containerStatuses", [])]
    conditions = [each for each in status.get("conditions", []) if each["status"] == "False"]
    messages = [each.get("message") or each.get("reason") for each in [*conditions, *waiting]]
    return "; ".join(dict.fromkeys(each for each in messages if each)) or status.get("phase", "Pending")
