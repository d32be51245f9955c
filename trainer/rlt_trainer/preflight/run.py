"""`rlt-trainer preflight`: take the measurements, run the checks, and report the results."""

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
from rlt_trainer.preflight.measure import Timeouts, measure
from rlt_trainer.preflight.probe import Probe

MARKS = {"passed": "✓", "warned": "!", "failed": "✗"}


class Progress:
    """The current stage. It is printed, and reported on a timeout."""

    def __init__(self) -> None:
        self.stage = "joining Ray"
        self._started = time.monotonic()

    def begin_stage(self, stage: str) -> None:
        """Begin and print the next stage."""
        self.stage = stage
        print(f"[preflight] {time.monotonic() - self._started:.1f} s: {stage}", flush=True)


def run(
    config: TrainingConfig, *, local: bool = False, probe: type[Probe] = Probe, timeouts: Timeouts | None = None
) -> int:
    """Run all checks. Return the exit code: 1 if a check failed. On timeout, the process exits with code 1.

    The last line on standard output is PREFLIGHT_PREFIX and the results, a JSON list of PreflightCheck. Raises
    ValueError if the config has no preflight.
    """
    if config.preflight is None:
        raise ValueError("The config has no preflight: set spec.preflight.enabled in the job.")
    timeouts, progress = timeouts or Timeouts(), Progress()
    timer = threading.Timer(timeouts.total, _exit_on_timeout, (progress, timeouts))
    timer.daemon = True
    timer.start()
    try:
        join_ray(config, local=local)
        measurements = measure(config, probe=probe, timeouts=timeouts, begin_stage=progress.begin_stage)
    finally:
        ray.shutdown()  # ends the output of other processes before the last line
        timer.cancel()
    every = (check(config, config.preflight, measurements) for check in [*checks.CHECKS, *network_checks.CHECKS])
    results = [each for each in every if each is not None]
    report(results)
    return int(any(each.result == "failed" for each in results))


def report(results: Sequence[PreflightCheck]) -> None:
    """Print a readable line for each check, and then the line for the operator."""
    for each in results:
        value = f" {each.value}." if each.value else ""
        remedy = f" {each.remedy}" if each.remedy else ""
        print(f"{MARKS[each.result]} {each.name}:{value} {each.message}{remedy}")
    encoded = TypeAdapter(list[PreflightCheck]).dump_json(list(results), by_alias=True, exclude_none=True)
    print(f"{PREFLIGHT_PREFIX}{encoded.decode()}", flush=True)


def _exit_on_timeout(progress: Progress, timeouts: Timeouts) -> None:
    message = f"The checks did not complete within {timeouts.total:.0f} s; the last stage was: {progress.stage}."
    remedy = "Inspect the worker pods, and verify in the Ray dashboard that all of them joined the cluster."
    report([checks.failed("time-limit", f"{timeouts.total:.0f} s", message, remedy)])
    sys.stderr.flush()
    os._exit(1)  # a call of Ray may never return
