"""`make test` and `make test-long`: run a test suite, or the parts that ONLY names, or the test files that FILES names.

python -m rlt_e2e.check                         # what every change passes, as CI does
python -m rlt_e2e.check --only lint,unit        # two parts
python -m rlt_e2e.check --files operator/tests/test_plan.py
python -m rlt_e2e.check --suite test-long       # the rest; parts that passed on the same files are skipped

Needs only Debian's Python, and creates .venv if it runs with another one.
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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlt_e2e.cluster.layout import state_folder
from rlt_e2e.cluster.stages import exit_with_message, format_duration
from rlt_e2e.environment import ROOT, VENV, ensure_environment
from rlt_e2e.parts import Finished, Part, Run, run_phases
from rlt_e2e.passed_parts import Passed, hash_files, read_passed, record_passed
from rlt_e2e.preconditions import check_machine, needs_cluster

LOGS = ROOT / "out/logs"
TIMINGS = ROOT / "out/timings"
PASSED = ROOT / "out/test-long"
TEMPORARY = Path(tempfile.gettempdir()) / f"rlt-tests-{os.getuid()}"
"""Short, since sockets below it have paths of at most 107 characters."""
BIN = VENV / "bin"

PACKAGES = (
    "rlt_pod",
    "rlt_api",
    "rlt_core",
    "rlt_operator",
    "rlt",
    "rlt_cli",
    "rlt_ui",
    "rlt_trainer",
    "rlt_e2e",
    "operator_bench",
    "trainer_bench",
    "gpu_bundle",
    "gpu_check",
    "release",
)
SCRIPTS = (
    "bench/bench_report.py",
    "bench/peak_bytes.py",
    "bench/train_step.py",
    "images/check_trainer.py",
    "images/compile_flashinfer.py",
    "tools/check_docs.py",
    "tools/check_idioms.py",
    "tools/check_terms.py",
    "tools/check_test_types.py",
    "tools/check_verl_mapping.py",
    "tools/compile_requirements.py",
    "tools/generate.py",
    "tools/outdated.py",
    "tools/program_keys.py",
    "tools/roll_keys.py",
    "tools/timings.py",
    "tools/values_schema.py",
    "trainer/oracles/make_fixtures.py",
    "trainer/oracles/families_that_train.py",
    "trainer/oracles/model_families.py",
)
"""Programs that no package holds; mypy checks them by path."""


def lint(run: Run) -> None:
    """Check style, types, import contracts, idioms, spelling, terms and documentation."""
    run.command([BIN / "ruff", "check", "."], cwd=ROOT, advice=".venv/bin/ruff check --fix .")
    run.command([BIN / "ruff", "format", "--check", "."], cwd=ROOT, advice=".venv/bin/ruff format .")
    run.command([BIN / "lint-imports"], cwd=ROOT)
    run.command([BIN / "mypy", *(word for package in PACKAGES for word in ("-p", package))], cwd=ROOT)
    run.command([BIN / "mypy", *SCRIPTS], cwd=ROOT)
    run.command([BIN / "python", "tools/check_test_types.py"], cwd=ROOT)
    run.command([BIN / "python", "tools/check_idioms.py"], cwd=ROOT)
    run.command([BIN / "codespell"], cwd=ROOT)
    run.command([BIN / "python", "tools/check_terms.py"], cwd=ROOT)
    run.command([BIN / "python", "tools/check_docs.py"], cwd=ROOT)
    run.command([BIN / "zensical", "build", "--strict"], cwd=ROOT)


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
    run.command(
        [BIN / "python", "-m", "rlt_e2e.cluster", "build"], cwd=ROOT, on_line=lambda line: note_stage(run, line)
    )


def pytest_part(marker: str, *options: str, folders: Sequence[str] = ()) -> Callable[[Run], None]:
    """A part that runs the tests that a marker expression selects, by default in all folders. It stops at a failure."""

    def start(run: Run) -> None:
        run_pytest(run, ["--maxfail=1", "-m", marker, *options, *folders])

    return start


def cluster_part(marker: str) -> Callable[[Run], None]:
    """A part that runs end-to-end tests, each worker on its cluster, and removes these clusters."""

    def start(run: Run) -> None:
        foreign = "KUBECONFIG" in os.environ
        try:
            workers = () if foreign else FILES_ON_TWO_WORKERS
            run_pytest(run, ["--maxfail=1", "-m", marker, *workers, *FOLDERS["cluster"]])
        finally:
            if not foreign:
                remove_clusters(run, state_folder())

    return start


def target_part(target: str, *variables: str) -> Callable[[Run], None]:
    """A part that runs a target of the Makefile. Its last line of output is the note of the part."""
    return lambda run: run.command(
        ["make", target, *variables], cwd=ROOT, on_line=lambda line: note_stage(run, line[:80])
    )


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
    command += ["-p", "rlt_e2e.timings", "-p", "no:cacheprovider"]
    measured = [f"--timings={timings}", f"--basetemp={temporary}"]
    try:
        run.command([*command, *measured, *options], cwd=ROOT, on_line=on_line)
    finally:  # a stopped run leaves the API servers of its fixtures
        remove_clusters(run, temporary)


def remove_clusters(run: Run, folder: Path) -> None:
    """Remove the embedded clusters whose state is below a folder."""
    run.command([BIN / "python", "-m", "rlt_e2e.cluster", "down", "--below", folder], cwd=ROOT, even_if_stopping=True)


def note_stage(run: Run, line: str) -> None:
    """Show a stage's progress line as the note of the part."""
    run.note = line.strip().removeprefix("==> ")


FOLDERS = {
    "apiserver": ("operator", "charts", "e2e"),
    "cluster": ("e2e",),
    "slow": ("trainer", "pod", "core", "client", "cli", "e2e", "ui"),
    "hosts": ("e2e",),
}
"""Marker -> the folders with its tests, so that a part does not import the others. conftest.py checks it."""
OUTSIDE_OF_TRAINER = tuple(folder for folder in FOLDERS["slow"] if folder != "trainer")
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
        Part(
            "apiserver",
            "tests against a real API server",
            pytest_part("apiserver", *ONE_WORKER, folders=FOLDERS["apiserver"]),
        ),
        Part(
            "slow",
            "trainer tests with real engines and several processes",
            pytest_part("slow and not long", *ONE_WORKER, folders=["trainer"]),
        ),
        Part("cluster", "end-to-end tests on two embedded clusters", cluster_part("cluster and not long")),
        Part(
            "tools",
            "slow tests of the command line, the page and other frameworks",
            pytest_part("slow and not long", *ONE_WORKER, folders=OUTSIDE_OF_TRAINER),
        ),
    )
}

PHASES = (
    (("lint", "verify"), ("unit",), ("programs",)),
    (("cluster", "tools"), ("apiserver", "slow")),
)
"""Phases run one after another. The lanes of a phase run side by side: cluster tests wait, trainer tests compute. Two
lanes take about equally long, and a third one makes all tests slower on two cores."""

QUICK_ROWS = "weight-sync,tool,driver,router"
LONG_PARTS = {
    name: Part(name, title, run, target="test-long")
    for name, title, run in (
        (
            "slow-long",
            "long trainer tests: learning curves, vLLM's options, families, losses of engines",
            pytest_part("slow and long", *ONE_WORKER, folders=["trainer"]),
        ),
        (
            "tools-long",
            "long tests of other frameworks",
            pytest_part("slow and long", *ONE_WORKER, folders=OUTSIDE_OF_TRAINER),
        ),
        ("cluster-long", "long end-to-end tests", cluster_part("cluster and long")),
        ("hosts", "rendered jobs on Slurm and Ray of several hosts", pytest_part("hosts", folders=FOLDERS["hosts"])),
        ("explore", "the reconciliation, explored with wider bounds", target_part("explore")),
        ("fuzz-api", "random jobs before the real API server", target_part("fuzz-api")),
        ("chaos", "a learning job for each fault", target_part("chaos")),
        ("models", "the tested model families", target_part("test-models")),
        ("bench-operator", "the operator under load, quick form", target_part("bench-operator", "ARGUMENTS=--quick")),
        ("bench-trainer", "the trainer's speed, the quickest rows", target_part("bench-trainer", f"ROWS={QUICK_ROWS}")),
    )
}
WRITTEN = (
    "docs/performance.md",
    "docs/reliability.md",
    "docs/reference/families-that-train.md",
    "trainer/oracles/families_that_train.json",
)
"""What the long parts write: without it, the parts that passed before would run again."""

NEEDS_PROGRAMS = {"apiserver", "cluster", "cluster-long", "chaos", "fuzz-api", "bench-operator"}
NEEDS_ROOT = NEEDS_PROGRAMS | {"hosts"}
CHECK = {"lint", "verify", "unit"}
"""The parts of `make check`."""


@dataclass(frozen=True)
class Suite:
    """The parts that a target of the Makefile runs."""

    target: str
    parts: dict[str, Part]
    phases: Sequence[Sequence[Sequence[str]]]
    """Names of parts."""


TEST = Suite("test", PARTS, PHASES)
TEST_LONG = Suite("test-long", LONG_PARTS, [[["programs"]], *([[name]] for name in LONG_PARTS)])
"""One part at a time: the benches measure, and Ray ends a host whose processes do not start in time."""
SUITES = {suite.target: suite for suite in (TEST, TEST_LONG)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a test suite.")
    parser.add_argument("--suite", choices=SUITES, default="test", help="suite (%(default)s)")
    parser.add_argument("--only", default="", help="parts, separated by commas")
    parser.add_argument("--files", default="", help="test files, separated by spaces")
    options = parser.parse_args()
    suite = SUITES[options.suite]
    phases = selected_phases(options.only, options.files, suite)
    names = {part.name for lanes in phases for lane in lanes for part in lane}
    files = options.files.split()
    check_machine([*sorted(names & NEEDS_ROOT), *filter(needs_cluster, files)], is_small=bool(files) or names <= CHECK)
    tree = hash_files(ROOT, without=WRITTEN) if suite is TEST_LONG else ""
    passed: dict[str, Passed] = {}
    if suite is TEST_LONG and not options.only and not files:
        passed = read_passed(PASSED, tree)
        phases = selected_phases("", "", suite, without=passed)
    if Path(sys.prefix) != VENV:
        ensure_environment()

    def on_end(finished: Finished) -> None:
        if finished.passed and finished.part.name in LONG_PARTS:
            record_passed(PASSED, finished.part.name, Passed(tree, finished.run.tests, finished.seconds))

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in background jobs, and tests send it
    started = time.monotonic()
    finished = run_phases(phases, LOGS, continues=suite is TEST_LONG, on_end=on_end)
    print_table(finished, passed, time.monotonic() - started)
    if not all(each.passed for each in finished):
        raise SystemExit(1)


def selected_phases(
    only: str, files: str, suite: Suite = TEST, *, without: Collection[str] = ()
) -> list[list[list[Part]]]:
    """The parts to run. Raises ValueError for a name that no part has, or a file that does not exist."""
    if files:
        missing = [file for file in files.split() if not (ROOT / file.partition("::")[0]).exists()]
        if missing:
            raise ValueError(f"FILES: {', '.join(missing)} does not exist: give paths from {ROOT}")
        return [[[Part("files", f"tests of {files}", lambda run: run_pytest(run, files.split()))]]]
    names = [name for name in re.split(r"[,\s]+", only) if name] or list(suite.parts)
    for name in names:
        if name not in suite.parts:
            raise ValueError(f"ONLY: {name} is not a part of `make {suite.target}`: {describe_parts(name, suite)}")
    names = [name for name in names if name not in without]
    if NEEDS_PROGRAMS & set(names):
        names.append("programs")
    parts = PARTS | LONG_PARTS
    return [[[parts[name] for name in lane if name in names] for lane in lanes] for lanes in suite.phases]


def describe_parts(name: str, suite: Suite) -> str:
    """What to use instead of a name that is not a part of the suite."""
    others = [other.target for other in SUITES.values() if name in other.parts]
    return f"use `make {others[0]} ONLY={name}`" if others else f"use {', '.join(suite.parts)}"


def print_table(finished: Sequence[Finished], passed: dict[str, Passed], seconds: float) -> None:
    """Print what each part took and its result, and pytest's counts as one line. Record what each part took.

    `passed` are the parts that passed before, with their names.
    """
    TIMINGS.mkdir(parents=True, exist_ok=True)
    record = TIMINGS / "parts.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    record.write_text(json.dumps(known | {each.part.name: round(each.seconds, 1) for each in finished}))
    rows = {name: (each.tests, each.seconds, "passed before") for name, each in passed.items()}
    for each in finished:
        result = "passed" if each.passed else f"failed, see {each.run.log}"
        rows[each.part.name] = (each.run.tests, each.seconds, result)
    order = list(PARTS | LONG_PARTS)
    print(f"\n{'PART':<16}{'TESTS':>8}{'TIME':>9}  RESULT")
    for name in sorted(rows, key=lambda name: order.index(name) if name in order else 0):
        tests, taken, result = rows[name]
        print(f"{name:<16}{tests or '':>8}{format_duration(taken):>9}  {result}")
    total = {word: sum(each.run.outcomes.get(word, 0) for each in finished) for word in ("passed", "failed", "skipped")}
    print(f"{'total':<16}{sum(total.values()) or '':>8}{format_duration(seconds):>9}")
    if any(total.values()):
        print(", ".join(f"{count} {word}" for word, count in total.items()))


if __name__ == "__main__":
    with exit_with_message():
        main()
