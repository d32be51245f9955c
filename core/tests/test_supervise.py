"""A program outside of Kubernetes, run by `supervise` from the archive that rendered jobs have, without Ray."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlt_core.knowledge.diagnosis import diagnose_logs
from rlt_core.targets.programs import SUPERVISED, build_programs_archive
from rlt_pod.preflight.table import format_table, print_preflight
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
)
COUNTED = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["RLT_ATTEMPT_DIRECTORY"])
print("attempt", folder.name, flush=True)
{body}
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    file = tmp_path / "rlt_pod.pyz"
    file.write_bytes(build_programs_archive(frozenset([*SUPERVISED, "preflight"])))
    return file


def start(programs: Path, body: str, *options: str) -> subprocess.Popen[str]:
    """Supervise a Python program of these lines."""
    run = str(programs.parent / "run")
    command = [sys.executable, "-I", str(programs), "supervise", "--run-directory", run, *options]
    program = ["--port", "0", "--", sys.executable, "-uc", COUNTED.format(body=body)]
    return subprocess.Popen([*command, "--", *program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def test_a_failed_program_is_diagnosed_and_its_exit_code_kept(programs: Path) -> None:
    code, output = finish(start(programs, f"print({OUT_OF_MEMORY!r}); sys.exit(7)"))
    log = programs.parent / "run/attempts/1/program.log"
    with log.open("rb") as stream:
        expected = diagnose_logs([stream])[0]
    assert code == 7
    assert "rlt: the attempt failed with exit code 7 after" in output
    assert f"rlt: {expected.severity} {expected.code}: {expected.message}" in output
    assert f"remedy: {expected.remedy}" in output


def test_a_failed_program_starts_again_with_a_new_folder(programs: Path) -> None:
    code, output = finish(start(programs, "sys.exit(1 if folder.name == '1' else 0)", "--restarts", "3"))
    assert code == 0
    assert [line for line in output.splitlines() if line.startswith("attempt ")] == ["attempt 1", "attempt 2"]
    assert "attempt 2 of 4 starts in 10 s" in output
    again = finish(start(programs, ""))
    assert again[0] == 0
    assert "attempt 3" in again[1]  # a job that Slurm has started again


@pytest.mark.parametrize(("earlier", "attempts"), [(["ray"], 2), (["program", "ray"], 1)])
def test_failures_of_earlier_starts_count_in_the_restarts(programs: Path, earlier: list[str], attempts: int) -> None:
    file = programs.parent / "failures"
    file.write_text("".join(f"{line}\n" for line in earlier))
    code, output = finish(start(programs, "sys.exit(1)", "--failures", str(file), "--restarts", "2"))
    assert code == 1
    assert output.count("rlt: the attempt failed") == attempts
    assert file.read_text().splitlines() == [*earlier, *["program"] * attempts]


def test_a_program_without_progress_is_ended(programs: Path) -> None:
    code, output = finish(start(programs, "signal.pause()", "--progress-deadline", "1"))
    assert code == 124
    assert "no progress for 1 s (spec.failurePolicy.progressDeadlineSeconds)" in output


def test_sigterm_reaches_the_program_and_starts_no_other_attempt(programs: Path) -> None:
    body = "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(3))); print('ready'); signal.pause()"
    process = start(programs, body, "--restarts", "5")
    assert process.stdout
    while "ready" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 3
    assert "saved" in output
    assert "starts in" not in output


def test_a_failed_preflight_ends_the_job(programs: Path) -> None:
    """Without Ray, the checks cannot start."""
    expected = programs.parent / "preflight.json"
    expected.write_text("{}")
    code, output = finish(start(programs, "", "--preflight", str(expected), "--restarts", "2"))
    assert code == 1
    assert "attempt 1" not in output


def test_the_results_are_kept_and_printed_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        {"name": "ranks", "result": "passed", "message": "All started.", "value": "2 processes"},
        {
            "name": "nofile",
            "result": "failed",
            "message": "Too few.",
            "value": "9",
            "threshold": "64",
            "remedy": "Raise it.",
        },
    ]
    output = f"print('[preflight] measuring'); print({PREFLIGHT_PREFIX + json.dumps(checks)!r}); raise SystemExit(1)"
    assert print_preflight([sys.executable, "-c", output], tmp_path / "run/preflight.json") == 1
    assert json.loads((tmp_path / "run/preflight.json").read_text()) == checks
    printed = capsys.readouterr().out
    assert printed == f"[preflight] measuring\n{format_table(checks)}\n"
    assert printed.splitlines()[1:] == [
        "CHECK     VALUE        LIMIT  RESULT",
        "✓ ranks   2 processes         All started.",
        "✗ nofile  9            64     Too few. Raise it.",
    ]


@pytest.mark.parametrize("version", ["3.10", "3.12"])
def test_the_diagnosis_runs_with_other_versions_of_python(programs: Path, version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], check=False).returncode:
        pytest.skip(f"no Python {version}")
    log = programs.parent / "log"
    log.write_text(OUT_OF_MEMORY)
    done = subprocess.run([python, "-I", programs, "diagnose", log], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("rlt: error GpuOutOfMemory: ")
