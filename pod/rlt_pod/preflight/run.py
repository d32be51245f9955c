"""Check a Ray cluster before the training: network, services, data, and one step of training.

    python3 rlt_pod.pyz preflight FILE

FILE has what the checks expect (expected.py). A Ray job on the head runs it, in the image of the job. A stage with a
failed check is the last one. The last line of the output is PREFLIGHT_PREFIX and the results as JSON, a list of
rlt_api.status.job_status.PreflightCheck. The exit code is 1 if a check failed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlt_pod.preflight.checks import bucket_checks, collective_checks, data_checks, network_checks, service_checks
from rlt_pod.preflight.expected import Expected, parse_expected
from rlt_pod.preflight.full import check_engine, list_not_possible, run_training
from rlt_pod.preflight.measure import Stopwatch, Timeouts, measure_data, measure_network, measure_services
from rlt_pod.preflight.members import PROCESS_MODULE, end_members, start_member, start_members, wait_for_nodes
from rlt_pod.preflight.process import Process
from rlt_pod.preflight.result import Result, add_stage, failed, format_line, to_json
from rlt_pod.preflight.trial.engine import ENGINE_TIMEOUT_S
from rlt_pod.preflight.trial.trainer_trial import run_trial
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rlt_pod.preflight.members import RayNode


class Run:
    """The results so far, and the current measurement. A timeout reports them."""

    def __init__(self, expected: Expected) -> None:
        self.expected = expected
        self.results: list[Result] = []
        self.stopwatch = Stopwatch(begin=self._begin)
        self.memory: int | None = None
        """Bytes of the smallest accelerator. None: there is none."""
        self._current = "joining Ray"
        self._started = time.monotonic()

    def check(self, stage: str, measured: Any, checks: Iterable[tuple[Any, str]]) -> None:
        """Add the results of the checks that apply."""
        for check, measurement in checks:
            result = check(self.expected, measured)
            if result is not None:
                self.add(stage, result, self.stopwatch.seconds.get(measurement, 0.0))

    def add_all(self, stage: str, results: Iterable[Result]) -> None:
        """Add the results of a measurement that has the name of the stage, if it was measured."""
        for result in results:
            self.add(stage, result, self.stopwatch.seconds.get(stage, 0.0))

    def add(self, stage: str, result: Result, seconds: float) -> None:
        """Add and print a result."""
        self.results.append(add_stage(result, stage, seconds))
        print(format_line(result), flush=True)

    @property
    def has_failed(self) -> bool:
        """Whether a check has failed."""
        return any(each.result == "failed" for each in self.results)

    def report(self) -> None:
        """Print the line for the operator."""
        print(f"{PREFLIGHT_PREFIX}{json.dumps([to_json(each) for each in self.results])}", flush=True)

    def exit_on_timeout(self, timeouts: Timeouts) -> None:
        """Report the results with a failed check `time-limit`, and exit: a call of Ray may never return."""
        limit = f"{timeouts.total:.0f} s"
        message = f"The checks did not complete within {limit}; the last measurement was: {self._current}."
        remedy = "Inspect the worker pods, and verify in the Ray dashboard that all of them joined the cluster."
        self.add("", failed("time-limit", limit, message, remedy, threshold=limit), timeouts.total)
        self.report()
        sys.stderr.flush()
        os._exit(1)

    def _begin(self, measurement: str) -> None:
        self._current = measurement
        print(f"[preflight] {time.monotonic() - self._started:.1f} s: measuring {measurement}", flush=True)


def run(expected: Expected, directory: str, *, timeouts: Timeouts | None = None, process: str = PROCESS_MODULE) -> int:
    """Run the stages and return the exit code. On timeout, the process exits with code 1.

    `directory` has the package rlt_pod in every pod: a folder or a zip archive. `process` is the module of the class
    that measures.
    """
    current = Run(expected)
    timeouts = timeouts or Timeouts()
    if expected.engine:
        timeouts = replace(timeouts, total=timeouts.total + ENGINE_TIMEOUT_S)
    timer = threading.Timer(timeouts.total, current.exit_on_timeout, (timeouts,))
    timer.daemon = True
    timer.start()
    ray = import_module("ray")
    try:
        ray.init(address="auto", log_to_driver=False)
        nodes = _check_cluster(current, directory, timeouts, process)
        timer.cancel()
        if expected.framework_trial and not current.has_failed:
            with current.stopwatch.measure("training"):
                results = run_training(expected.framework_trial, expected, nodes, directory, process)
            current.add_all("training", results)
    finally:
        ray.shutdown()  # the training needs the accelerators
        timer.cancel()
    if expected.trial and not current.has_failed:
        with current.stopwatch.measure("training"):
            results = run_trial(expected.trial, current.memory)
        current.add_all("training", results)
    if not current.has_failed:
        current.add_all("training", list_not_possible(expected, "training"))
    current.report()
    return int(current.has_failed)


def _check_cluster(current: Run, directory: str, timeouts: Timeouts, process: str) -> list[RayNode]:
    """Run the stages before the training, up to the first one with a failed check. Return the workers."""
    expected = current.expected
    stopwatch = current.stopwatch
    head, nodes = wait_for_nodes(sum(each.needed for each in expected.workers), timeouts.join)
    members = start_members(nodes, expected, directory, process)
    own = Process(expected, head.pod, head.address, is_head=True)

    def compute_limit(measured: Any) -> float | None:
        return collective_checks.compute_limit(expected, measured)

    network = measure_network(own, members, timeouts, stopwatch, compute_limit)
    current.check("network", network, [*network_checks.CHECKS, *collective_checks.CHECKS])
    if current.has_failed:
        return nodes
    services = measure_services(own, members, nodes, timeouts, stopwatch)
    current.check("services", services, service_checks.CHECKS)
    current.memory = min((each.total for each in services.devices if each.total), default=None)
    if expected.engine and not current.has_failed:
        end_members(members)  # the engine needs the accelerators
        with stopwatch.measure("engine"):
            result = check_engine(expected.engine, expected, nodes, directory, process)
        current.add("services", result, stopwatch.seconds["engine"])
        members = [start_member(node, expected, directory, process) for node in nodes]
    current.add_all("services", list_not_possible(expected, "services"))
    if current.has_failed:
        return nodes
    data = measure_data(expected, own, members, timeouts, stopwatch)
    current.check("data", data, [*data_checks.CHECKS, *bucket_checks.CHECKS])
    end_members(members)
    return nodes


def main(arguments: list[str]) -> int:
    """Run the program."""
    return run(parse_expected(Path(arguments[0]).read_text()), str(Path(__file__).parents[2]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
