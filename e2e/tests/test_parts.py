"""The runner of the test suite.

- parts of a lane run in order, lanes side by side;
- a failure prints the end of the part's log, and stops the other parts;
- ONLY and FILES select, and reject names that do not exist.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from check import PARTS, selected_phases
from environment import ROOT
from parts import Part, PartFailedError, Run, StoppedError, run_phases

PYTHON = sys.executable
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
    removed, pipe = tmp_path / "removed", tmp_path / "pipe"
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
from parts import Part, run_phases
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


def test_only_selects_parts_in_their_order() -> None:
    phases = selected_phases("unit, lint", "")
    assert [[[each.name for each in lane] for lane in lanes] for lanes in phases] == [
        [["lint"], ["unit"], []],
        [[], []],
        [[]],
    ]


def test_tests_on_a_cluster_need_the_go_programs() -> None:
    names = [each.name for lanes in selected_phases("cluster", "") for lane in lanes for each in lane]
    assert names == ["programs", "cluster"]


def test_an_unknown_part_is_rejected_with_the_known_ones() -> None:
    command = ["make", "test", "ONLY=nosuch"]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "KUBECONFIG": "/x"})
    assert outcome.returncode
    expected = f"ONLY: nosuch is not a part of the test suite: use {', '.join(PARTS)}"
    assert expected in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_missing_file_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"FILES: no/such.py does not exist"):
        selected_phases("", "no/such.py")
