"""The process that takes the place of an actor in the next program on the same Ray cluster.

Its imports take longer than everything else at the start of an actor. Ray starts it while the training runs.
"""

from __future__ import annotations

import os
from functools import cache

from rlt_pod.prestart import SUCCESSORS, start_processes


@cache
def start_successor() -> None:
    """Make Ray start a process on this node, once, if the pod has the variable. An engine that starts again in the same
    program gets it as well."""
    if os.environ.get(SUCCESSORS) != "1":
        return
    import ray

    this = ray.get_runtime_context().get_node_id()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    start_processes([node for node in nodes if node["NodeID"] == this], {this: 1})
