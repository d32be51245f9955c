"""`make test`: run the test suite, or the parts of it that ONLY names, or the test files that FILES names.

python e2e/check.py                             # everything, as CI does
python e2e/check.py --only lint,unit            # two parts
python e2e/check.py --files operator/tests/test_plan.py
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster.layout import state_folder
from cluster.stages import exit_with_message, format_duration
from environment import ROOT, VENV
from parts import Finished, Part, Run, run_phases

LOGS = ROOT / "out/logs"
TIMINGS = ROOT / "out/timings"
TEMPORARY = Path(tempfile.gettempdir()) / "rlt-tests"
"""Short, since sockets below it have paths of at most 107 characters."""
BIN = VENV / "bin"

PACKAGES = (
    "rlt_api",
    "rlt_core",
    "rlt_operator",
    "rlt",
    "rlt_cli",
    "rlt_ui",
    "rlt_trainer",
    "cluster",
    "chaos",
    "operator_bench",
    "trainer_bench",
    "gpu_bundle",
    "gpu_check",
)
SCRIPTS = (
    "bench/bench_report.py",
    "bench/peak_bytes.py",
    "bench/train_step.py",
    "e2e/build_image.py",
    "e2e/check.py",
    "e2e/demo.py",
    "e2e/fuzz_api.py",
    "e2e/hosts.py",
    "e2e/panels.py",
    "e2e/slurm.py",
    "images/check_trainer.py",
    "tools/check_docs.py",
    "tools/check_terms.py",
    "tools/check_test_types.py",
    "tools/check_verl_mapping.py",
    "tools/compile_requirements.py",
    "tools/generate.py",
    "tools/roll_keys.py",
    "tools/timings.py",
    "tools/values_schema.py",
    "trainer/oracles/make_fixtures.py",
    "trainer/oracles/families_that_train.py",
    "trainer/oracles/model_families.py",
)
"""Programs that no package holds; mypy checks them by path."""


def lint(run: Run) -> None:
    """Check style, types, import contracts, spelling, terms and documentation."""
    run.command([BIN / "ruff", "check", "."], cwd=ROOT, advice=".venv/bin/ruff check --fix .")
    run.command([BIN / "ruff", "format", "--check", "."], cwd=ROOT, advice=".venv/bin/ruff format .")
    run.command([BIN / "lint-imports"], cwd=ROOT)
    run.command([BIN / "mypy", *(word for package in PACKAGES for word in ("-p", package))], cwd=ROOT)
    run.command([BIN / "mypy", *SCRIPTS], cwd=ROOT)
    run.command([BIN / "python", "tools/check_test_types.py"], cwd=ROOT)
    run.command([BIN / "codespell"], cwd=ROOT)
    run.command([BIN / "python", "tools/check_terms.py"], cwd=ROOT)
    run.command([BIN / "python", "tools/check_docs.py"], cwd=ROOT)
    # MkDocs Material announces MkDocs 2 on every run; the pinned version is 1.
    run.command([BIN / "mkdocs", "build", "--strict"], cwd=ROOT, env={"NO_MKDOCS_2_WARNING": "1"})


def verify(run: Run) -> None:
    """Check that nothing generated is out of date."""
    for script, target in (
        ("tools/generate.py", "generate"),
        ("tools/values_schema.py", "generate"),
        ("tools/compile_requirements.py", "requirements"),
    ):
        run.command([BIN / "python", script, "--check"], cwd=ROOT, advice=f"make {target}")


def programs(run: Run) -> None:
    """Build the Go programs that the later parts run; seconds once they are built."""
    run.command([BIN / "python", "-m", "cluster", "build"], cwd=ROOT, on_line=lambda line: note_stage(run, line))


def pytest_part(marker: str, *options: str, folders: Sequence[str] | None = None) -> Callable[[Run], None]:
    """A part that runs the tests that a marker expression selects, in `folders`. It stops at the first failure.

    Default: all folders with tests of the marker.
    """

    def start(run: Run) -> None:
        run_pytest(run, ["--maxfail=1", "-m", marker, *options, *(folders or FOLDERS.get(marker, ()))])

    return start


def cluster_tests(run: Run) -> None:
    """Run the end-to-end tests, each worker on its own cluster, and remove these clusters."""
    foreign = "KUBECONFIG" in os.environ
    try:
        workers = () if foreign else FILES_ON_TWO_WORKERS
        run_pytest(run, ["--maxfail=1", "-m", "cluster", *workers, *FOLDERS["cluster"]])
    finally:
        if not foreign:
            remove_clusters(run, state_folder())


def run_pytest(run: Run, options: Sequence[str]) -> None:
    """Run pytest, count its tests and print its summary lines."""

    def on_line(line: str) -> None:
        if re.search(r" (PASSED|FAILED|SKIPPED)\b", line) and (test := re.search(r"::(test_\w+)", line)):
            run.tests += 1
            run.note = f"{run.tests} tests, last {test[1][:60]}"
        elif closing := re.search(r"^=+ (\d.* in [\d.]+s.*?) =+$", line):
            found = re.findall(r"(\d+) (passed|failed|skipped)", closing[1])
            run.outcomes = {word: int(count) for count, word in found}
            print(f"    {run.name}: {closing[1]}", flush=True)
        elif line.startswith(("SKIPPED [", "FAILED ", "ERROR ")):
            print(f"    {run.name}: {line}", flush=True)

    TIMINGS.mkdir(parents=True, exist_ok=True)
    TEMPORARY.mkdir(exist_ok=True)
    temporary = TEMPORARY / run.name
    timings = TIMINGS / f"{run.name}.jsonl"
    timings.unlink(missing_ok=True)
    command: list[str | Path] = [BIN / "python", "-m", "pytest", "-v", "--color=no"]
    command += ["-p", "timings", "-p", "no:cacheprovider"]
    measured = [f"--timings={timings}", f"--basetemp={temporary}"]
    try:
        run.command([*command, *measured, *options], cwd=ROOT, on_line=on_line)
    finally:  # a stopped run leaves the API servers of its fixtures
        remove_clusters(run, temporary)


def remove_clusters(run: Run, folder: Path) -> None:
    """Remove the embedded clusters whose state is below a folder."""
    run.command([BIN / "python", "-m", "cluster", "down", "--below", folder], cwd=ROOT, even_if_stopping=True)


def note_stage(run: Run, line: str) -> None:
    """Show a stage's progress line as the note of the part."""
    run.note = line.strip().removeprefix("==> ")


FOLDERS = {
    "apiserver": ("operator", "charts", "e2e"),
    "cluster": ("e2e",),
    "slow": ("trainer", "core", "cli", "e2e", "ui"),
    "hosts": ("e2e",),
}
"""Marker -> the folders with its tests, so that a part does not import the others. conftest.py checks it."""
UNIT = "not apiserver and not cluster and not slow and not hosts"
ON_TWO_WORKERS = ("-n", "2", "--dist", "load", "--maxschedchunk", "32")
"""Each worker has few tests at a time: it still runs those after another worker's first failure."""
FILES_ON_TWO_WORKERS = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Tests of a file share a model, an API server or a cluster."""
ONE_WORKER = ("-n", "1", "--dist", "loadfile")
"""For the parts beside the cluster tests: more processes than cores only wait for each other. The Ray heads of the
API-server tests also share an address."""

PARTS = {
    part.name: part
    for part in (
        Part("lint", "lint: style, types, import contracts, documentation", lint),
        Part("verify", "verify: generated files and pinned requirements", verify),
        Part("unit", "unit tests", pytest_part(UNIT, *ON_TWO_WORKERS)),
        Part("programs", "Go programs", programs),
        Part("apiserver", "tests against a real API server", pytest_part("apiserver", *ONE_WORKER)),
        Part(
            "slow",
            "trainer tests with real engines and several processes",
            pytest_part("slow", *ONE_WORKER, folders=["trainer"]),
        ),
        Part("cluster", "end-to-end tests on two embedded clusters", cluster_tests),
        Part(
            "tools",
            "slow tests of the command line, the page and other frameworks",
            pytest_part("slow", *ONE_WORKER, folders=[each for each in FOLDERS["slow"] if each != "trainer"]),
        ),
        Part("hosts", "rendered jobs on Slurm and Ray of several hosts", pytest_part("hosts")),
    )
}

PHASES = (
    (("lint", "verify"), ("unit",), ("programs",)),
    (("cluster", "tools"), ("apiserver", "slow")),
    (("hosts",),),
)
"""Phases run one after another. The lanes of a phase run side by side: cluster tests wait, trainer tests compute. Two
lanes take about equally long, and a third one makes all tests slower on two cores. The hosts run alone: Ray ends a host
whose processes do not start in time."""
NEEDS_PROGRAMS = {"apiserver", "cluster"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the test suite.")
    parser.add_argument("--only", default="", help=f"parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--files", default="", help="test files, separated by spaces")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in background jobs, and tests send it
    started = time.monotonic()
    finished = run_phases(selected_phases(options.only, options.files), LOGS)
    print_table(finished, time.monotonic() - started)


def selected_phases(only: str, files: str) -> list[list[list[Part]]]:
    """The parts to run. Raises ValueError for a name that no part has, or a file that does not exist."""
    if files:
        missing = [file for file in files.split() if not (ROOT / file.partition("::")[0]).exists()]
        if missing:
            raise ValueError(f"FILES: {', '.join(missing)} does not exist: give paths from {ROOT}")
        return [[[Part("files", f"tests of {files}", lambda run: run_pytest(run, files.split()))]]]
    names = [name for name in re.split(r"[,\s]+", only) if name] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise ValueError(f"ONLY: {', '.join(unknown)} is not a part of the test suite: use {', '.join(PARTS)}")
    if NEEDS_PROGRAMS & set(names):
        names.append("programs")
    return [[[PARTS[name] for name in lane if name in names] for lane in lanes] for lanes in PHASES]


def print_table(finished: Sequence[Finished], seconds: float) -> None:
    """Print and record what each part took, and print pytest's counts as one line."""
    TIMINGS.mkdir(parents=True, exist_ok=True)
    (TIMINGS / "parts.json").write_text(json.dumps({each.part.name: round(each.seconds, 1) for each in finished}))
    print(f"\n{'PART':<12}{'TESTS':>8}{'TIME':>9}")
    for each in sorted(finished, key=lambda each: list(PARTS).index(each.part.name) if each.part.name in PARTS else 0):
        print(f"{each.part.name:<12}{each.run.tests or '':>8}{format_duration(each.seconds):>9}")
    total = {word: sum(each.run.outcomes.get(word, 0) for each in finished) for word in ("passed", "failed", "skipped")}
    print(f"{'total':<12}{sum(total.values()) or '':>8}{format_duration(seconds):>9}")
    if any(total.values()):
        print(", ".join(f"{count} {word}" for word, count in total.items()))


if __name__ == "__main__":
    assert Path(sys.prefix) == VENV, "make test runs this with .venv/bin/python"
    with exit_with_message():
        main()
