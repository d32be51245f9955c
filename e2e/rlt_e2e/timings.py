"""A pytest plugin that writes what each test takes: `pytest -p rlt_e2e.timings --timings=FILE`.

Each line of the file is a JSON object: test, seconds (wall-clock) and cpu (CPU seconds). The CPU time counts the
pytest process with all its descendants and, for tests marked `cluster`, the pods on the cluster's nodes. Without
root it lacks descendants that still run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlt_e2e.cluster import cgroups

STARTED = pytest.StashKey[tuple[float, float]]()
OPTION = "--timings"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, help="file that gets a JSON line for each test")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(OPTION):
        config.pluginmanager.register(Timings(config), "rlt-timings")


class Timings:
    """Measures tests where they run, and writes the lines where the results are collected."""

    def __init__(self, config: pytest.Config) -> None:
        self.collects = not hasattr(config, "workerinput")
        self.file = Path(config.getoption(OPTION))
        self.group = f"/rlt-tests-{os.getpid()}"
        self.nodes: list[str] = []
        """Control groups of the nodes in this worker's cluster; the fixture `cluster` sets them."""
        self.seconds: dict[str, float] = {}
        try:
            cgroups.enter(self.group)
        except (OSError, ValueError):  # without root, or without a hierarchy that accounts for CPU time
            self.group = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[STARTED] = (time.monotonic(), self.cpu_seconds())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield
        started, cpu = item.stash[STARTED]
        taken = {"seconds": time.monotonic() - started, "cpu": self.cpu_seconds() - cpu}
        item.user_properties += [(name, round(value, 2)) for name, value in taken.items()]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.collects and report.when == "teardown":
            with self.file.open("a") as file:
                print(json.dumps({"test": report.nodeid, **dict(report.user_properties)}), file=file)

    def pytest_unconfigure(self) -> None:
        if self.group:
            cgroups.leave(self.group)

    def cpu_seconds(self) -> float:
        if not self.group:
            return sum(os.times()[:4])
        return sum(cgroups.cpu_seconds(group) for group in (self.group, *self.nodes))
