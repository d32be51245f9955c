"""The pod of a job and the container that the options of a command name."""

from __future__ import annotations

from typing import Any

from rlt.connection import Connection, is_head
from rlt.errors import NotFoundError
from rlt_core.job import Manifest


async def find_pod(connection: Connection, name: str, pod: str | None, worker: int | None) -> Manifest:
    """The pod with a name, the worker pod with an index, or the head pod. Raises NotFoundError if it does not exist."""
    pods = await connection.list_pods(name)
    if not pods:
        await connection.get_job(name)  # raises NotFoundError if the job does not exist
    status_command = connection.kube_context.command_line(f"status {name}")
    if pod is not None:
        for each in pods:
            if each["metadata"]["name"] == pod:
                return each
        names = ", ".join(each["metadata"]["name"] for each in pods) or "none"
        raise NotFoundError(f"Job {name} has no pod {pod}. Its pods: {names}.", next=status_command)
    pods = [each for each in pods if is_head(each) == (worker is None)]
    index = worker or 0
    if index >= len(pods):
        missing = "no head pod" if worker is None else f"no worker pod {worker}: it has {len(pods)}"
        raise NotFoundError(f"Job {name} has {missing}.", next=status_command)
    return pods[index]


def find_container(connection: Connection, name: str, pod: Manifest, container: str | None) -> str:
    """The container or init container of the pod with a name, by default Ray's. Raises NotFoundError."""
    spec: dict[str, Any] = pod["spec"]
    names = [str(each["name"]) for each in spec["containers"]]
    if container is None:
        return names[0]  # the Ray container in KubeRay's pods
    init_names = [str(each["name"]) for each in spec.get("initContainers", [])]
    if container in (*names, *init_names):
        return container
    pod_name = pod["metadata"]["name"]
    listed = ", ".join(names) + (f"; init containers: {', '.join(init_names)}" if init_names else "")
    raise NotFoundError(
        f"Pod {pod_name} has no container {container}. Its containers: {listed}.",
        next=connection.kube_context.command_line(f"logs {name} --pod {pod_name} --container {names[0]}"),
    )
