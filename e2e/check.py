"""`make test`: all that must hold, the fast checks first. `python e2e/check.py lint unit` runs those stages alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from cluster.stages import Stage, exit_plainly, stage
from environment import ROOT, VENV

LOGS = ROOT / "out/logs"
BIN = VENV / "bin"


def main() -> None:
    """Run the named stages, or all of them in order."""
    wanted = sys.argv[1:] or list(STAGES)
    unknown = sorted(set(wanted) - set(STAGES))
    if unknown:
        raise ValueError(f"there is no stage {', '.join(unknown)}; the stages are {', '.join(STAGES)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        (LOGS / f"{name}.log").unlink(missing_ok=True)
        STAGES[name](name)


def lint(name: str) -> None:
    """Style, types, import contracts."""
    with stage("lint: ruff, mypy, import contracts", estimate_s=60) as this:
        log = LOGS / f"{name}.log"
        this.run([BIN / "ruff", "check", "."], log=log, cwd=ROOT, advice=".venv/bin/ruff check --fix .")
        this.run([BIN / "ruff", "format", "--check", "."], log=log, cwd=ROOT, advice=".venv/bin/ruff format .")
        packages = [word for package in PACKAGES for word in ("-p", package)]
        this.run([str(BIN / "mypy"), *packages], log=log, cwd=ROOT)
        this.run([str(BIN / "mypy"), *SCRIPTS], log=log, cwd=ROOT)
        this.run([BIN / "lint-imports"], log=log, cwd=ROOT)


def verify(name: str) -> None:
    """Nothing generated is out of date."""
    with stage("verify: generated files and pins", estimate_s=15) as this:
        for script in ("tools/generate.py", "tools/values_schema.py", "tools/compile_requirements.py"):
            this.run([BIN / "python", script, "--check"], log=LOGS / f"{name}.log", cwd=ROOT, advice="make generate")


def tests(marker: str, title: str, estimate_s: float, *options: str) -> Callable[[str], None]:
    """A stage that runs the tests of one marker expression."""

    def run(name: str) -> None:
        with stage(title, estimate_s=estimate_s) as this:
            pytest = [str(BIN / "python"), "-m", "pytest", "-v", "--durations=10", "--color=no"]
            this.run([*pytest, *options, "-m", marker], log=LOGS / f"{name}.log", on_line=show_tests(this), cwd=ROOT)

    return run


def show_tests(this: Stage) -> Callable[[str], None]:
    """Notes the test that runs, and prints what pytest skipped and its closing line."""
    done = 0

    def on_line(line: str) -> None:
        nonlocal done
        if " PASSED" in line or " FAILED" in line or " SKIPPED" in line:
            done += 1
            name = next(word for word in line.split() if "::" in word)
            this.note(f"{done} tests, last {name.rsplit('::', 1)[-1]}")
        if line.startswith(("SKIPPED [", "FAILED ", "ERROR ")) or (line.startswith("==") and " in " in line):
            print(f"    {line.strip('= ')}" if line.startswith("SKIPPED") else line, flush=True)

    return on_line


def apiserver_tests(name: str) -> None:
    """The tests that need an API server, and no nodes."""
    from cluster import cert_manager, programs

    programs.obtain_built()  # a test would build them as well, but show no progress
    cert_manager.build()  # after them: most of its packages are theirs
    tests("apiserver", "tests against the real API server", 480, *FILES_ON_TWO_CORES)(name)


def cluster_tests(name: str) -> None:
    """The end-to-end tests, and the end of the cluster they ran on."""
    from cluster import Cluster, fake_nodes, kueue

    ours = "KUBECONFIG" not in os.environ
    if ours:
        kueue.build()  # a test would build them as well, but show no progress
        fake_nodes.build()
    tests("cluster", "end-to-end tests on the whole cluster", 2100)(name)
    if ours:
        Cluster.connect().down()


SCRIPTS = (
    "bench/train_step.py",
    "bench/profile_choice.py",
    "e2e/build_image.py",
    "e2e/check.py",
    "e2e/demo.py",
    "e2e/fuzz_api.py",
    "tools/check_verl_mapping.py",
    "tools/compile_requirements.py",
    "tools/generate.py",
    "tools/values_schema.py",
    "trainer/oracles/make_fixtures.py",
)
PACKAGES = ("rlt_api", "rlt_core", "rlt_operator", "rlt_cli", "rlt_trainer", "cluster")

UNIT = "not apiserver and not cluster and not slow"
ON_TWO_CORES = ("-n", "2", "--dist", "worksteal")
"""For what computes."""
FILES_ON_TWO_CORES = ("-n", "2", "--dist", "loadfile")
"""For what waits, and shares a model or an API server within a file. The whole cluster is there once."""

STAGES: dict[str, Callable[[str], None]] = {
    "lint": lint,
    "verify": verify,
    "unit": tests(UNIT, "unit tests", 80, *ON_TWO_CORES),
    "apiserver": apiserver_tests,
    "slow": tests("slow", "trainer tests with real engines and several ranks", 480, *FILES_ON_TWO_CORES),
    "cluster": cluster_tests,
}

if __name__ == "__main__":
    assert Path(sys.prefix) == VENV, "make test runs this with .venv/bin/python"
    with exit_plainly():
        main()
