"""The pod of a job that the options of a command name."""

from __future__ import annotations

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
