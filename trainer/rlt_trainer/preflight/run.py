"""`rlt-trainer preflight`: measure, judge, and say it to people and to the operator."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence

import ray
from pydantic import TypeAdapter

from rlt_api.driver_report import PREFLIGHT_PREFIX
from rlt_api.status import PreflightCheck
from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.session import join_ray
from rlt_trainer.preflight import checks, network_checks
from rlt_trainer.preflight.measure import Patience, measure
from rlt_trainer.preflight.probe import Probe

MARKS = {"passed": "✓", "warned": "!", "failed": "✗"}


class Progress:
    """What is being done. It is printed, and it is what a time limit names."""

    def __init__(self) -> None:
        self.stage = "joining Ray"
        self._started = time.monotonic()

    def say(self, stage: str) -> None:
        """The next stage begins."""
        self.stage = stage
        print(f"[preflight] {time.monotonic() - self._started:.1f} s: {stage}", flush=True)


def run(
    config: TrainingConfig, *, local: bool = False, probe: type[Probe] = Probe, patience: Patience | None = None
) -> int:
    """All checks. Returns the exit code: 1 if one has failed. Ends the process itself if they are not done in time.

    The last line on standard output is PREFLIGHT_PREFIX and what was found, a list of PreflightCheck. Raises ValueError
    for a config that asks for none.
    """
    if config.preflight is None:
        raise ValueError("The config has no preflight: set spec.preflight.enabled in the job.")
    patience, progress = patience or Patience(), Progress()
    limit = threading.Timer(patience.in_all, _give_up, (progress, patience))
    limit.daemon = True
    limit.start()
    try:
        join_ray(config, local=local)
        measured = measure(config, probe=probe, patience=patience, say=progress.say)
    finally:
        ray.shutdown()  # no process' output comes after the last line
        limit.cancel()
    judged = (check(config, config.preflight, measured) for check in [*checks.CHECKS, *network_checks.CHECKS])
    found = [each for each in judged if each is not None]
    report(found)
    return int(any(each.result == "failed" for each in found))


def report(found: Sequence[PreflightCheck]) -> None:
    """For people a line each, for the operator the last one."""
    for each in found:
        value = f" {each.value}." if each.value else ""
        remedy = f" {each.remedy}" if each.remedy else ""
        print(f"{MARKS[each.result]} {each.name}:{value} {each.message}{remedy}")
    said = TypeAdapter(list[PreflightCheck]).dump_json(list(found), by_alias=True, exclude_none=True)
    print(f"{PREFLIGHT_PREFIX}{said.decode()}", flush=True)


def _give_up(progress: Progress, patience: Patience) -> None:
    message = f"The checks were not done after {patience.in_all:.0f} s; the last was {progress.stage}."
    remedy = "Look at the worker pods, and whether Ray has them all (the cluster's dashboard)."
    report([checks.failed("time-limit", f"{patience.in_all:.0f} s", message, remedy)])
    sys.stderr.flush()
    os._exit(1)  # a call into Ray may never return
