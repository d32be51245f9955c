"""Run Debian's Prometheus as a process on loopback, for the end-to-end tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import StageError, cache_folder, stage
from rlt_e2e.ports import free_port

READY_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Series:
    """One series of a result: its labels and its (Unix time, value) pairs, a single pair for an instant vector."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        """The latest value."""
        return self.samples[-1][1]


@dataclass(frozen=True)
class Prometheus:
    address: str

    def query(self, expression: str, *, at: float | None = None) -> list[Series]:
        """Run an instant query, now or at a Unix time. Raises ValueError with the message of Prometheus."""
        return self._read("query", {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"}))

    def query_range(self, expression: str, *, start: float, end: float, step: float) -> list[Series]:
        """Run a query at each `step` seconds of a time in Unix time. Raises ValueError as `query`."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return self._read("query_range", {"query": expression, **times})

    def _read(self, path: str, parameters: Mapping[str, str]) -> list[Series]:
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                result = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters['query']}: {json.load(error)['error']}") from None
        return [_parse_series(each) for each in result]

    def await_value(self, expression: str, value: float, *, timeout_s: float) -> None:
        """Wait until the expression has one series with this value. Raises TimeoutError with the actual result."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.query(expression)
            if [series.value for series in found] == [value]:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expression} is not {value} after {timeout_s:.0f} s: {found}")
            time.sleep(0.5)


def obtain_prometheus() -> Path:
    """Return a folder with prometheus and promtool: Debian's package, unpacked into the cache and not installed.

    No service starts, and an installed Prometheus is not changed.
    """
    folder = cache_folder() / "prometheus"
    with exclusive_lock(cache_folder() / "prometheus.lock"):
        if not folder.exists():
            draft = folder.with_name(f"prometheus.{os.getpid()}")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            log = cache_folder() / "prometheus.log"
            with stage("unpack prometheus", estimate_s=15) as this:
                this.run(["apt-get", "update"], log=log)
                this.run(["apt-get", "download", "prometheus"], log=log, cwd=draft)
                (package,) = draft.glob("*.deb")
                this.run(["dpkg-deb", "--extract", package, draft], log=log)
                package.unlink()
                draft.rename(folder)
    return folder / "usr/bin"


@contextmanager
def prometheus(config: Mapping[str, Any], folder: Path) -> Iterator[Prometheus]:
    """Run Prometheus with this configuration and its files in `folder`. promtool checks the configuration first."""
    programs = obtain_prometheus()
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config, indent=1))  # JSON is YAML
    promtool("check", "config", str(file))
    listen = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={listen}"]
    log = folder / "prometheus.log"
    with log.open("w") as out:
        process = subprocess.Popen([programs / "prometheus", *options], stdout=out, stderr=subprocess.STDOUT)
    try:
        server = Prometheus(f"http://{listen}")
        _await_ready(server, process, log)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


def promtool(*arguments: str, input: str | None = None) -> None:
    """Run promtool. Raises ValueError with its findings."""
    answer = subprocess.run([obtain_prometheus() / "promtool", *arguments], input=input, capture_output=True, text=True)
    if answer.returncode:
        raise ValueError(f"promtool {' '.join(arguments)}: {answer.stdout}{answer.stderr}")


def _await_ready(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"{server.address}/-/ready", timeout=5):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise StageError("Prometheus is not ready", log=log) from None
        time.sleep(0.1)


def _parse_series(result: Mapping[str, Any]) -> Series:
    pairs = result["values"] if "values" in result else [result["value"]]
    return Series(result["metric"], tuple((float(moment), float(value)) for moment, value in pairs))
