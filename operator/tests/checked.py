"""Observed values of a job with preflight: before, during and after its checks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import observed as o

from rlt_operator.observation import Ray
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

SPEC = {**o.SPEC, "preflight": {"level": "basic"}}
ID = "sum-99999999-preflight"
PASSED = {"name": "all-reduce", "result": "passed", "value": "0.52 GB/s", "message": "All sums are right."}
WARNED = {"name": "clocks", "result": "warned", "value": "31.5 s", "message": "A clock is wrong.", "remedy": "Use NTP."}
FAILED = {
    "name": "shared-memory",
    "result": "failed",
    "value": "0.1Gi",
    "pods": ["sum-workers-worker-b"],
    "message": "/dev/shm has 0.1Gi.",
    "remedy": "Make it larger.",
}

PODS = tuple(replace(pod, node=f"node-{pod.name[-1]}") for pod in o.pods())
READY = o.recorded(replace(o.READY, job=o.job(SPEC), pods=PODS))


def checks(status: Any, found: Sequence[object] = ()) -> Ray:
    """The preflight checks, as Ray reports them."""
    log = f"[preflight] joining Ray\n{PREFLIGHT_PREFIX}{json.dumps(list(found))}\n"
    return o.checks(status, log)


CHECKING = replace(READY, ray=checks("RUNNING"))
GOOD = replace(READY, ray=checks("SUCCEEDED", [PASSED, WARNED]))
BAD = replace(READY, ray=checks("FAILED", [PASSED, FAILED]))
