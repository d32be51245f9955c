"""The message for a worker process that died: process, pod and cause, from Ray's error. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

FIELD = re.compile(r"^\t(class_name|pid|ip): (.+)$", re.MULTILINE)
"""Lines of Ray's error about the actor (ray/exceptions.py, ActorDiedError, Ray 2.60)."""
EXIT_DETAIL = re.compile(
    r"Worker exit detail: (.+?)(?= Some common causes| There are some potential root causes|\Z)", re.DOTALL
)
"""How the process exited (src/ray/core_worker and src/ray/raylet, Ray 2.60), without the list of possible causes."""


def describe_death(error: str, pods: Mapping[str, str]) -> str:
    """Describe the death of an actor from the text of Ray's error. `pods`: address -> name of the pod."""
    fields = dict(FIELD.findall(error))
    address = fields.get("ip")
    place = f" in pod {pods.get(address, address)}" if address else ""
    process = f" (pid {fields['pid']})" if "pid" in fields else ""
    worker = fields.get("class_name", "worker").rpartition(".")[2]
    return (
        f"The process of a {worker}{process}{place} died: {_find_cause(error)}. If the kernel has ended it because of "
        "its memory, increase memory or reduce the batch sizes. The run can resume from its latest checkpoint."
    )


def _find_cause(error: str) -> str:
    if detail := EXIT_DETAIL.search(" ".join(error.split())):
        return detail[1].rstrip(".")
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("The actor")), lines[0] if lines else "no message")
    return last.partition(". ")[0].rstrip(".")
