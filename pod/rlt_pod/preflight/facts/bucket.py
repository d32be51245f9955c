"""Whether a pod can use the bucket of the run: the result of `rlt-trainer bucket`, a command of the image."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 50.0
"""Time for the command, less than a process has for its answer. Its requests end after some retries."""
NO_RESULT = "Use an image with the trainer of the operator's version, and look at the log of the pod."
GROUP = "RAY_NODE_TYPE_NAME"
"""KubeRay sets it to the name of the worker group."""


@dataclass(frozen=True)
class BucketFacts:
    """The bucket in one pod."""

    pod: str
    problem: str | None
    """None: objects can be listed, written, put with a condition, read and deleted."""
    fix: str = ""
    skew: float | None = None
    """Seconds by which the clock of the pod is ahead of the server's. None: unknown."""
    speed: float | None = None
    """MB/s of an upload, while the other pods upload as well. None: unknown."""


def uses_bucket(groups: Sequence[str], *, is_head: bool) -> bool:
    """Whether this pod has the keys of the bucket. Outside of Kubernetes, each node has them."""
    return is_head or os.environ.get(GROUP) in (None, *groups)


def measure_bucket(pod: str, command: Sequence[str], timeout_s: float = TIMEOUT_S) -> BucketFacts:
    """Run the command, whose last line has the result in JSON."""
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        fields = json.loads(done.stdout.strip().rpartition("\n")[2])
        return BucketFacts(pod, fields["problem"], fields["fix"], fields["skew"], fields["speed"])
    except subprocess.TimeoutExpired:
        problem = f"{command[0]} has not ended within {timeout_s:.0f} s"
        return BucketFacts(pod, problem, "Permit egress from the pod to the server spec.storage.endpoint.")
    except OSError as error:
        return BucketFacts(pod, f"{command[0]}: {error.strerror}", NO_RESULT)
    except (ValueError, KeyError, TypeError):
        last = done.stderr.strip().rpartition("\n")[2]
        return BucketFacts(pod, f"{command[0]} has exited with code {done.returncode}: {last[:300]}", NO_RESULT)
