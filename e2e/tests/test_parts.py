"""The runner of the test suite.

- parts of a lane run in order, lanes side by side;
- a failure prints the end of the part's log, and stops the other parts;
- ONLY and FILES select, and reject names that do not exist, before anything is installed;
- `make test-long` continues after a failure, and skips what has passed on the same files.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rlt_e2e.check import LONG_PARTS, PARTS, TEST_LONG, print_table, selected_phases
from rlt_e2e.environment import ROOT
from rlt_e2e.parts import Finished, Part, PartFailedError, Run, StoppedError, run_phases
from rlt_e2e.passed_parts import Passed, hash_files, read_passed, record_passed

PYTHON = sys.executable
CLUSTER_FILE = "e2e/tests/test_chaos.py"
UNPRIVILEGED = 65534
FOREVER = [PYTHON, "-c", "import threading; threading.Event().wait()"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def part(name: str, *command: str | Path) -> Part:
    return Part(name, f"part {name}", lambda run: run.command(command))


def test_parts_of_a_lane_run_in_order_and_lanes_side_by_side(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = part("reader", PYTHON, "-c", f"open({str(pipe)!r}).read()")  # ends only if the writer runs meanwhile
    writer = part("writer", PYTHON, "-c", f"open({str(pipe)!r}, 'w').write('x')")
    last = part("last", PYTHON, "-c", "print('done')")
    finished = run_phases([[[reader], [writer, last]]], tmp_path)
    names = [each.part.name for each in finished]
    assert sorted(names) == ["last", "reader", "writer"]
    assert names.index("writer") < names.index("last")
    assert "done" in (tmp_path / "last.log").read_text()


def test_a_failure_prints_the_log_and_stops_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    failing = part("failing", PYTHON, "-c", "print('the reason'); raise SystemExit(3)")
    with pytest.raises(SystemExit) as exited:
        run_phases([[[failing], [part("other", *FOREVER)]], [[part("later", *FOREVER)]]], tmp_path)
    assert exited.value.code == 1
    printed = capfd.readouterr()
    assert "FAILED  part failing" in printed.err
    assert "exited with status 3" in printed.err
    assert "\nthe reason\n" in printed.err
    assert "next: make test ONLY=failing" in printed.err
    assert "stopped  part other" in printed.out
    assert "later" not in printed.out


def test_the_clean_up_of_a_stopped_part_runs(tmp_path: Path) -> None:
    removed = tmp_path / "removed"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    started = f"open({str(pipe)!r}, 'w').close()"

    def with_clean_up(run: Run) -> None:
        try:
            run.command([PYTHON, "-c", f"{started}; import threading; threading.Event().wait()"])
        finally:
            run.command([PYTHON, "-c", f"open({str(removed)!r}, 'w')"], even_if_stopping=True)

    failing = part("failing", PYTHON, "-c", f"open({str(pipe)!r}).read(); raise SystemExit(1)")
    with pytest.raises(SystemExit):
        run_phases([[[failing], [Part("cleans", "cleans", with_clean_up)]]], tmp_path)
    assert removed.exists()


def test_a_stopped_part_starts_no_further_command(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(StoppedError):
        Run("a", tmp_path / "a.log", stopping).command([PYTHON, "-c", ""])


def test_a_command_that_starts_during_the_stop_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    run = Run("a", tmp_path / "a.log", stopping)
    start = subprocess.Popen

    def stop() -> None:
        stopping.set()
        run.interrupt()

    stops = threading.Thread(target=stop)

    def start_slowly(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        stops.start()
        stops.join(0.5)  # `interrupt` ends here only if it does not wait for the start
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    with pytest.raises(StoppedError):
        run.command([PYTHON, "-c", "import threading; threading.Event().wait(60)"])
    stops.join()
    assert run.child
    assert run.child.returncode == -signal.SIGINT


def test_ctrl_c_stops_all_parts_and_exits_with_130(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path[:0] = [{str(ROOT / "e2e")!r}]
from pathlib import Path
from rlt_e2e.parts import Part, run_phases
wait = "import os, threading; print(os.getpid(), flush=True); threading.Event().wait()"
command = [sys.executable, "-c", wait]
part = Part("a", "a", lambda run: run.command(command, on_line=lambda line: print(line, flush=True)))
run_phases([[[part]]], Path({str(tmp_path)!r}))
"""
    with subprocess.Popen([PYTHON, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True) as suite:
        assert suite.stdout
        child = next(int(line) for line in suite.stdout if line.strip().isdigit())
        suite.send_signal(signal.SIGINT)
        suite.communicate(timeout=300)
    assert suite.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_command_names_its_repair(tmp_path: Path) -> None:
    run = Run("a", tmp_path / "a.log", threading.Event())
    with pytest.raises(PartFailedError, match="exited with status 1") as failed:
        run.command(["false"], advice="make generate")
    assert failed.value.advice == "make generate"


def test_a_suite_that_continues_runs_every_part(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    failing = part("failing", PYTHON, "-c", "raise SystemExit(3)")
    good = part("good", PYTHON, "-c", "")
    ended: list[Finished] = []
    finished = run_phases([[[failing, good]], [[good]]], tmp_path, continues=True, on_end=ended.append)
    assert [(each.part.name, each.passed) for each in finished] == [("failing", False), ("good", True), ("good", True)]
    assert ended == finished
    assert "FAILED  part failing" in capfd.readouterr().err


def test_only_selects_parts_in_their_order() -> None:
    phases = selected_phases("unit, lint", "")
    assert [[[each.name for each in lane] for lane in lanes] for lanes in phases] == [
        [["lint"], ["unit"], []],
        [[], []],
    ]


def test_tests_on_a_cluster_need_the_go_programs() -> None:
    assert names_of(selected_phases("cluster", "")) == ["programs", "cluster"]
    assert names_of(selected_phases("chaos", "", TEST_LONG)) == ["programs", "chaos"]
    assert names_of(selected_phases("models", "", TEST_LONG)) == ["models"]


def names_of(phases: list[list[list[Part]]]) -> list[str]:
    return [each.name for lanes in phases for lane in lanes for each in lane]


def test_parts_that_passed_are_left_out() -> None:
    assert names_of(selected_phases("", "", TEST_LONG)) == ["programs", *LONG_PARTS]
    assert names_of(selected_phases("", "", TEST_LONG, without=set(LONG_PARTS) - {"models", "hosts"})) == [
        "hosts",
        "models",
    ]


def test_no_guarantee_is_proved_by_the_long_suite_alone() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/guarantees.md").read_text())
    assert "operator/tests/test_reconcile.py" in named
    files = [ROOT / name for name in named if "/" in name] + list((ROOT / "operator/tests/exploration").glob("*.py"))
    assert not [file for file in files if re.search(r"mark\.(long|hosts)\b", file.read_text())]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with an ignored folder."""
    folder = tmp_path / "repository"
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    (folder / ".gitignore").write_text("out/\n")
    (folder / "code.py").write_text("1\n")
    return folder


def test_the_hash_changes_with_every_file_but_ignored_and_excluded_ones(repository: Path) -> None:
    def now() -> str:
        return hash_files(repository, without=("page.md",))

    first = now()
    (repository / "out").mkdir()
    (repository / "out/log").write_text("x")
    (repository / "page.md").write_text("x")
    assert now() == first
    (repository / "new.py").write_text("x")
    second = now()
    (repository / "code.py").write_text("2\n")
    assert len({first, second, now()}) == 3


def test_a_commit_of_the_same_files_has_the_same_hash(repository: Path) -> None:
    before = hash_files(repository)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "add", "--all"], cwd=repository, check=True)
    subprocess.run(["git", *identity, "commit", "--quiet", "--message", "a"], cwd=repository, check=True)
    assert hash_files(repository) == before


def test_a_folder_without_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ValueError, match="not a git repository"):
        hash_files(tmp_path)


def test_passed_parts_are_read_for_the_same_files_alone(tmp_path: Path) -> None:
    record_passed(tmp_path / "passed", "chaos", Passed("aa", tests=0, seconds=2400.0))
    record_passed(tmp_path / "passed", "hosts", Passed("bb", tests=4, seconds=286.0))
    assert read_passed(tmp_path / "passed", "bb") == {"hosts": Passed("bb", tests=4, seconds=286.0)}
    assert read_passed(tmp_path / "none", "bb") == {}


def test_the_table_has_all_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlt_e2e.check.TIMINGS", tmp_path)
    run = Run("chaos", tmp_path / "chaos.log", threading.Event(), tests=3, outcomes={"passed": 2, "failed": 1})
    failed = Finished(LONG_PARTS["chaos"], 65.0, run, passed=False)
    print_table([failed], {"hosts": Passed("aa", tests=4, seconds=286.0)}, 66.0)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [
        ["hosts", "4", "4:46", "passed", "before"],
        ["chaos", "3", "1:05", "failed,", "see", str(tmp_path / "chaos.log")],
        ["total", "3", "1:06"],
        ["2", "passed,", "1", "failed,", "0", "skipped"],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("test ONLY=nosuch", f"ONLY: nosuch is not a part of `make test`: use {', '.join(PARTS)}\n"),
        ("test ONLY=hosts", "ONLY: hosts is not a part of `make test`: use `make test-long ONLY=hosts`\n"),
        ("test-long ONLY=nosuch", f"ONLY: nosuch is not a part of `make test-long`: use {', '.join(LONG_PARTS)}\n"),
        ("test FILES=no/such.py", f"FILES: no/such.py does not exist: give paths from {ROOT}\n"),
    ],
)
def test_an_invalid_selection_is_rejected_before_anything_is_installed(words: str, message: str) -> None:
    outcome = run_make(*words.split())
    assert outcome.returncode
    assert outcome.stderr.startswith(f"error: {message}")
    assert outcome.stdout == ""


@pytest.mark.parametrize(
    ("selection", "needing"), [("ONLY=unit,cluster", "cluster"), (f"FILES={CLUSTER_FILE}", CLUSTER_FILE)]
)
def test_a_user_without_root_reads_which_tests_need_it(selection: str, needing: str) -> None:
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    if subprocess.run(["test", "-r", ROOT / "Makefile"], user=user).returncode:
        pytest.skip("other users cannot read the folder of the repository")
    outcome = run_make("test", selection, user=user)
    assert outcome.returncode
    assert outcome.stderr.startswith(f"error: {needing}: these tests need root for namespaces and control groups")
    assert "or run `make check`, which needs no root\n" in outcome.stderr
    assert outcome.stdout == ""


OUTER = ("KUBECONFIG", "MAKEFLAGS", "MAKELEVEL")
"""Variables of the environment that change what make does."""


def run_make(*words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the Makefile of the repository. The variables of an outer make do not reach it."""
    environment = {name: value for name, value in os.environ.items() if name not in OUTER}
    return subprocess.run(["make", *words], capture_output=True, text=True, cwd=ROOT, env=environment, user=user)
