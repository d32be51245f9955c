"""Commands in the pods of a job. kubectl runs them, with the credentials and the protocol of the user's cluster."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence

from rlt.kube_context import KubeContext
from rlt_cli.failure import Failure
from rlt_core.job import Manifest


class PodCommandError(Exception):
    """A command in a pod failed. The text is the reason."""


def build_command(
    pod: Manifest, arguments: Sequence[str], kube_context: KubeContext, *, stdin: bool = False, terminal: bool = False
) -> list[str]:
    """Build the call of kubectl that runs a command in the Ray container of a pod."""
    options = {
        "--kubeconfig": kube_context.kubeconfig,
        "--context": kube_context.context,
        "--namespace": pod["metadata"]["namespace"],
    }
    given = [word for option, value in options.items() if value for word in (option, value)]
    container = pod["spec"]["containers"][0]["name"]  # the Ray container in KubeRay's pods
    flags = [*(["--stdin"] if stdin else []), *(["--tty"] if terminal else [])]
    return ["kubectl", "exec", *given, *flags, pod["metadata"]["name"], "--container", container, "--", *arguments]


def require_kubectl(command: str) -> None:
    """Raise Failure if kubectl is not on the PATH. `command`: the command of rlt that calls it."""
    if shutil.which("kubectl") is None:
        raise Failure(f"kubectl is not on the PATH, and {command} calls it.", next="kubectl version --client")


async def run_in_pod(pod: Manifest, arguments: Sequence[str], kube_context: KubeContext, *, timeout_s: float) -> str:
    """Run a command in a pod. Returns its standard output. Raises PodCommandError."""
    pipe = asyncio.subprocess.PIPE
    command = build_command(pod, arguments, kube_context)
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await process.communicate()
    except TimeoutError:
        raise PodCommandError(f"no answer within {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise PodCommandError((lines or [f"exit code {process.returncode}"])[-1])
    return output.decode(errors="replace")
