"""The files of `rlt bundle`: everything about a job that explains its behavior, with secrets masked.

What cannot be read, for example without permission, is listed in errors.txt. Secrets are never requested.
"""

from __future__ import annotations

import base64
import importlib.metadata
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlt.connection import Connection, prepare_output
from rlt.errors import NotFoundError, RltError
from rlt.kept_files import has_kept_files, read_archive
from rlt.yaml_text import to_yaml
from rlt_api.findings.masking import mask_text
from rlt_api.spec.plain_secrets import find_secrets
from rlt_api.validation.resolved_spec import get_resolved_spec
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError
from rlt_core.names import DASHBOARD_PORT, JOB_LABEL

MAX_LOG_LINES = 20_000
"""Maximum number of lines of one log: its end."""
OPERATOR_LOG_LINES = 5_000
"""Maximum number of lines of the operator's log, which contains other jobs as well."""
PARTS = {"rlt-operator": "operator", "kuberay-operator": "kuberay", "kueue": "kueue"}
"""Label app.kubernetes.io/name of a Deployment -> its name in versions.yaml."""
DEPLOYMENTS = "/apis/apps/v1/deployments"
NAME_LABEL = "app.kubernetes.io/name"


@dataclass
class Bundle:
    """Files by path."""

    files: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    """What could not be read."""
    secrets: frozenset[str] = frozenset()
    """Plain-text secrets of the job, which programs may print."""

    def add_text(self, path: str, text: str) -> None:
        """Add a text, such as a log, with secrets masked."""
        self.files[path] = mask_text(text, self.secrets)

    def add_object(self, path: str, manifest: Mapping[str, Any]) -> None:
        """Add an object of the API as YAML, with secrets masked."""
        self.add_text(path, to_yaml(prepare_output(dict(manifest))))

    def write(self, file: Path, folder: str, now: datetime) -> None:
        """Write a compressed tar archive. Raises OSError."""
        files = {**self.files, "errors.txt": "".join(f"{error}\n" for error in self.errors)}
        with tarfile.open(file, "w:gz") as archive:
            for path, text in sorted(files.items()):
                content = text.encode(errors="replace")
                member = tarfile.TarInfo(f"{folder}/{path}")
                member.size = len(content)
                member.mtime = now.timestamp()
                member.mode = 0o600
                archive.addfile(member, io.BytesIO(content))


async def collect_bundle(connection: Connection, name: str) -> Bundle:
    """Collect the files of a job. Raises NotFoundError if it does not exist."""
    job = await connection.api.get(api_paths.job(connection.namespace, name))
    if job is None:
        await connection.get_job(name)  # raises NotFoundError
        raise NotFoundError(f"Job {name} was deleted.", next=connection.kube_context.command_line("get"))
    parts = [job["spec"], get_resolved_spec(job)]
    bundle = Bundle(secrets=frozenset(found.value for part in parts for found in find_secrets(part, "spec")))
    bundle.add_object("job.yaml", job)
    await _add_runtime(bundle, connection, job)
    objects = [job, *await _add_children(bundle, connection, name)]
    await _add_events(bundle, connection, objects)
    for pod in (each for each in objects if each.get("kind") == "Pod"):
        await _add_pod_logs(bundle, connection, pod)
    await _add_program_log(bundle, connection, job)
    await _add_kept_files(bundle, connection, job)
    await _add_versions(bundle, connection)
    return bundle


async def _list(bundle: Bundle, connection: Connection, what: str, path: str, **query: str) -> list[Manifest]:
    try:
        return await connection.api.list(path, **query)
    except ApiError as error:
        bundle.errors.append(f"{what}: {error}")
        return []


async def _add_runtime(bundle: Bundle, connection: Connection, job: Manifest) -> None:
    runtime = job.get("status", {}).get("runtime") or job["spec"].get("runtimeRef")
    if runtime is None:
        return
    try:
        found = await connection.api.get(api_paths.runtime(runtime["name"]))
    except ApiError as error:
        bundle.errors.append(f"RLRuntime {runtime['name']}: {error}")
        return
    if found is None:
        bundle.errors.append(f"RLRuntime {runtime['name']}: does not exist")
    else:
        bundle.add_object("runtime.yaml", found)


async def _add_children(bundle: Bundle, connection: Connection, name: str) -> list[Manifest]:
    """Add the objects with the label of the job. Returns them with their kind, which the API server omits in lists."""
    namespace = connection.namespace
    kinds = {
        "RayCluster": api_paths.ray_clusters(namespace),
        "ConfigMap": api_paths.config_maps(namespace),
        "Pod": api_paths.pods(namespace),
        "PersistentVolumeClaim": api_paths.pvc(namespace, "").rstrip("/"),
        "PodDisruptionBudget": api_paths.disruption_budget(namespace, "").rstrip("/"),
        "NetworkPolicy": api_paths.network_policy(namespace, "").rstrip("/"),
    }
    children = []
    for kind, path in kinds.items():
        for found in await _list(bundle, connection, kind, path, labelSelector=f"{JOB_LABEL}={name}"):
            child = {"kind": kind, **found}
            bundle.add_object(f"children/{kind.lower()}-{child['metadata']['name']}.yaml", child)
            children.append(child)
    return children


async def _add_events(bundle: Bundle, connection: Connection, objects: list[Manifest]) -> None:
    uids = {each["metadata"]["uid"] for each in objects}
    found = await _list(bundle, connection, "events", api_paths.events(connection.namespace))
    events = [each for each in found if each.get("involvedObject", {}).get("uid") in uids]
    events.sort(key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or "")
    bundle.add_text("events.yaml", to_yaml([prepare_output(each) for each in events]))


async def _add_pod_logs(bundle: Bundle, connection: Connection, pod: Manifest) -> None:
    """Add the current and the previous log of each container."""
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        for previous in (False, True) if container.get("restartCount") else (False,):
            path = f"logs/{name}/{container['name']}{'.previous' if previous else ''}.log"
            query = {"container": container["name"], "previous": str(previous).lower()}
            await _add_log(bundle, connection, path, api_paths.log(connection.namespace, name), query, MAX_LOG_LINES)


async def _add_log(
    bundle: Bundle, connection: Connection, path: str, url: str, query: dict[str, str], lines: int
) -> None:
    query = {**query, "timestamps": "true", "tailLines": str(lines)}
    status, text = await connection.api.send("GET", url, query=query)
    if status == 200:
        bundle.add_text(path, text)
    else:
        bundle.errors.append(f"{path}: HTTP {status}: {' '.join(text.split())[:300]}")


async def _add_program_log(bundle: Bundle, connection: Connection, job: Manifest) -> None:
    """Add the output of the program, while the head exists."""
    name = job["metadata"]["name"]
    job_id = job.get("status", {}).get("rayCluster", {}).get("jobId")
    if job_id is None:
        bundle.errors.append("logs/program.log: no program runs")
        return
    try:
        text = json.loads(await connection.get_from_head(name, DASHBOARD_PORT, f"/api/jobs/{job_id}/logs"))["logs"]
    except RltError as error:
        bundle.errors.append(f"logs/program.log: {error.message}")
        return
    bundle.add_text("logs/program.log", "".join(text.splitlines(keepends=True)[-MAX_LOG_LINES:]))


async def _add_kept_files(bundle: Bundle, connection: Connection, job: Manifest) -> None:
    """Add the ends of all attempts' logs and stacks, from the volume of the job."""
    if not has_kept_files(job):
        return
    try:
        archive = await read_archive(connection, job["metadata"]["name"])
    except (RltError, ApiError) as error:
        bundle.errors.append(f"attempts: {error.message if isinstance(error, RltError) else error}")
        return
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive))) as files:
        for member in files.getmembers():
            content = files.extractfile(member)
            if content:
                bundle.add_text(f"attempts/{member.name}", content.read().decode(errors="replace"))


async def _add_versions(bundle: Bundle, connection: Connection) -> None:
    """Add the versions, and the end of the operator's log."""
    versions: dict[str, Any] = {
        "rlt": importlib.metadata.version("rlt"),
        "collected": f"{datetime.now(UTC):%FT%TZ}",
    }
    status, text = await connection.api.send("GET", "/version")
    versions["kubernetes"] = json.loads(text)["gitVersion"] if status == 200 else f"HTTP {status}"
    selector = f"{NAME_LABEL} in ({','.join(PARTS)})"
    for each in await _list(bundle, connection, "Deployments", DEPLOYMENTS, labelSelector=selector):
        part = PARTS[each["metadata"]["labels"][NAME_LABEL]]
        containers = each["spec"]["template"]["spec"]["containers"]
        versions.setdefault(part, []).extend(container["image"] for container in containers)
    bundle.add_text("versions.yaml", to_yaml(versions))
    query = {"labelSelector": f"{NAME_LABEL}=rlt-operator"}
    for pod in await _list(bundle, connection, "pods of the operator", api_paths.pods(None), **query):
        metadata = pod["metadata"]
        url = api_paths.log(metadata["namespace"], metadata["name"])
        await _add_log(bundle, connection, f"logs/operator/{metadata['name']}.log", url, {}, OPERATOR_LOG_LINES)
