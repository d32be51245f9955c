"""Test files of the trainer, run for one device, as figures."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpu_check.figures import Figure
from gpu_check.settings import Settings

TESTS = Path(__file__).resolve().parents[2] / "trainer/tests"
OPTIONS = {
    "asyncio_mode": "auto",
    "asyncio_default_fixture_loop_scope": "function",
    "consider_namespace_packages": "true",
    "pythonpath": "",
    "markers": "slow\nhosts\napiserver\ncluster\ngpu(devices=1)",
}
"""Of pyproject.toml, which the bundle does not have: its root conftest imports the tests of other packages."""


def run_tests(settings: Settings, title: str, files: Sequence[str]) -> Iterator[Figure]:
    """Run the tests of `files` that are marked gpu; in a rehearsal those that run on CPUs and take seconds."""
    report = settings.folder / f"{title}.xml".replace(" ", "-")
    options = [word for name, value in OPTIONS.items() for word in ("-o", f"{name}={value}")]
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-ra", "-c", "/dev/null", "--rootdir", str(TESTS)),
        *("--confcutdir", str(TESTS), "--import-mode=importlib", "-p", "no:cacheprovider", *options),
        *("-m", settings.choose("gpu", "not gpu and not slow"), f"--junitxml={report}"),
        *(str(TESTS / file) for file in files),
    ]
    code = subprocess.run(command, check=False).returncode
    if not report.exists():
        raise RuntimeError(f"pytest ended with exit code {code} and without a report")
    passed = 0
    failed = list[str]()
    skipped = list[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("name", "")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif (skip := case.find("skipped")) is not None:
            skipped.append(f"{name} ({skip.get('message', '')})")
        else:
            passed += 1
    note = f"failed: {'; '.join(failed)}" if failed else ""
    yield Figure(f"{title}: tests passed", passed, passed=not failed and passed > 0, note=note)
    if skipped:
        yield Figure(f"{title}: tests not run", len(skipped), note="; ".join(skipped)[:1000])
