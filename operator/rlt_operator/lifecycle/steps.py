"""The policies of `plan`: each looks at one situation of a job and decides, or leaves it to the next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rlt_operator.lifecycle.admission import (
    create,
    earlier_cluster,
    kuberay_missing,
    kuberay_too_old,
    name_taken,
    network_undecided,
    runtime_missing,
)
from rlt_operator.lifecycle.provisioning import preflight
from rlt_operator.lifecycle.restarts import restarting
from rlt_operator.lifecycle.running import provisioning, queued, running, submit, suspended
from rlt_operator.lifecycle.terminal import ended, finished, head_lost, invalid, ran_too_long, waited_too_long
from rlt_operator.lifecycle.verdict import Verdict
from rlt_operator.observation import Observed

Step = Callable[[Observed, datetime], Verdict | None]

STEPS: list[Step] = [
    finished,
    invalid,
    waited_too_long,
    runtime_missing,
    restarting,
    ended,
    suspended,
    ran_too_long,
    name_taken,
    earlier_cluster,
    kuberay_missing,
    network_undecided,
    kuberay_too_old,
    create,
    queued,
    head_lost,
    running,
    preflight,
    submit,
    provisioning,
]
