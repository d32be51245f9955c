"""The policies of `plan`: each looks at one situation of a job and decides, or leaves it to the next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rlt_operator.observation import Observed
from rlt_operator.policies.before_the_cluster import (
    create,
    earlier_cluster,
    kuberay_missing,
    kuberay_too_old,
    name_taken,
    network_undecided,
    runtime_missing,
)
from rlt_operator.policies.before_the_training import preflight
from rlt_operator.policies.ends import ended, finished, head_lost, invalid, ran_too_long, waited_too_long
from rlt_operator.policies.on_the_cluster import provisioning, queued, running, submit, suspended
from rlt_operator.policies.restarts import restarting
from rlt_operator.verdict import Verdict

Policy = Callable[[Observed, datetime], Verdict | None]

POLICIES: list[Policy] = [
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
