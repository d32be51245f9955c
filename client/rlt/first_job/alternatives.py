"""What else fits if a first job does not."""

from __future__ import annotations

from dataclasses import replace

from rlt.first_job.manifests import build_first_job
from rlt.first_job.request import NoFirstJobError, Request

MAX_NODES = 64


def list_alternatives(request: Request) -> list[str]:
    """Return the options of `rlt init` with which the job fits: adapters alone, and the smallest number of nodes."""
    found = []
    if not request.lora and _fits(replace(request, lora=True)):
        found.append("--lora")
    nodes = request.nodes * 2
    while nodes <= MAX_NODES:
        if _fits(replace(request, nodes=nodes)):
            found.append(f"--nodes {nodes}")
            break
        nodes *= 2
    return found


def _fits(request: Request) -> bool:
    try:
        build_first_job(request)
    except NoFirstJobError:
        return False
    return True
