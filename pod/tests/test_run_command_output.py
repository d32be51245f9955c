"""The output of a program that run_command.py runs, on its own output and in a file."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from apiserver.waiting import eventually
from command_wrapper import Start, end, prints
from gate import Gate

from rlt_api.spec.training_config import PROGRAMS_FILE
from rlt_core.knowledge.diagnosis import diagnose_logs
from rlt_e2e.ports import free_port
from rlt_pod.report.driver_report import PROGRESS_PREFIX


def test_the_output_is_unchanged(start: Start) -> None:
    output = b"one\r\n\xff\xfe \xc3\x28\r 10%|\r 20%|\n\x00" + b"x" * 2_000_000 + b"\nno end of line"
    script = f"import sys\nsys.stdout.buffer.write({output[:30]!r} + b'x' * 2_000_000 + {output[-16:]!r})"
    expected = output[:30] + b"x" * 2_000_000 + output[-16:]
    assert end(start(script, "--port", str(free_port())))[:2] == (0, expected)


def test_standard_error_keeps_its_place_in_the_output(start: Start) -> None:
    script = "import os\nfor text in (b'a', b'b', b'c'): os.write(1, text); os.write(2, text)"
    assert end(start(script, "--port", str(free_port()))) == (0, b"aabbcc", "")


def test_incomplete_lines_are_not_buffered(start: Start, gate: Gate) -> None:
    process = start(f"print('loading: 10%', end='\\r')\nprint('loading: 2', end='')\n{gate.wait}", "--port", "0")
    assert prints(process, b"loading: 10%\rloading: 2")
    gate.open()
    assert end(process)[0] == 0


def test_a_command_that_closes_its_output_continues(start: Start, gate: Gate, tmp_path: Path) -> None:
    process = start(f"import os\nos.close(1); os.close(2)\n{gate.wait}os.mkdir('gone'); os._exit(5)", "--port", "0")
    gate.open()
    assert end(process)[0] == 5
    assert (tmp_path / "gone").exists()


def test_a_full_disk_does_not_end_the_command(mounted: Path) -> None:
    command = [sys.executable, str(mounted / PROGRAMS_FILE), "run-command", "--port", "0", "--"]
    command += [sys.executable, "-uc", "print('a'); print('b'); raise SystemExit(4)"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 4
    assert done.stderr.count("No space left on device") == 1


def test_the_output_is_kept_in_a_file(start: Start, tmp_path: Path) -> None:
    """Appended to the output of the run before a suspension, with the last report. The exit code is unchanged."""
    log = tmp_path / "attempts/1/program.log"
    outputs = []
    for _ in range(2):
        code, out, _ = end(start("print('step:1 - a:1')\nraise SystemExit(3)", "--port", "0", "--log", str(log)))
        assert code == 3
        outputs.append(out)
    assert log.read_bytes() == b"".join(outputs)
    assert outputs[0].splitlines()[-1].startswith(PROGRESS_PREFIX.encode())


def test_the_file_has_the_output_while_the_program_runs(start: Start, tmp_path: Path, gate: Gate) -> None:
    log = tmp_path / "program.log"
    process = start(f"print('early')\n{gate.wait}", "--port", "0", "--log", str(log))
    eventually("the output", lambda: log.exists() and log.read_text() == "early\n")
    process.kill()  # as at the loss of the node
    assert log.read_text() == "early\n"


def test_a_program_that_reports_its_progress_gets_no_server(start: Start, tmp_path: Path) -> None:
    """rlt's trainer has its own server on the port, and prints its own last report."""
    log = tmp_path / "program.log"
    port = free_port()
    script = f"import socket\nsocket.create_server(('', {port}))\nprint('step:1 - a:1')"
    assert end(start(script, "--no-progress", "--port", str(port), "--log", str(log))) == (0, b"step:1 - a:1\n", "")
    assert log.read_bytes() == b"step:1 - a:1\n"


NCCL_LOG = """sum-workers-{0}:73:196 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.{0}<0>
sum-workers-{0}:73:196 [0] ibvwrap.cc:173 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory
sum-workers-{0}:73:196 [0] NCCL INFO ncclCommInitRank comm 0x55d0c0 rank {0} nranks 2 - Init ABORT
"""


@pytest.mark.parametrize("code", [1, 0])
def test_a_failed_programs_output_has_the_warnings_in_nccls_files(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setenv("NCCL_DEBUG_FILE", f"{tmp_path}/nccl-%h-%p.log")
    for rank in (0, 1):
        (tmp_path / f"nccl-sum-workers-{rank}-73.log").write_text(NCCL_LOG.format(rank))
    _, output, _ = end(start(f"raise SystemExit({code})", "--port", "0"))
    warnings = [line.split()[0] for line in output.decode().splitlines() if "ibv_reg_mr failed" in line]
    assert warnings == (["sum-workers-0:73:196", "sum-workers-1:73:196"] if code else [])
    assert b"NET/IB : Using" not in output
    codes = [finding.code for finding in diagnose_logs([io.BytesIO(output)])]
    assert codes == (["RdmaMemoryLock"] if code else [])


def test_a_log_that_cannot_be_written_does_not_end_the_command(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    script = "print('a', flush=True)\nprint('b')\nraise SystemExit(4)"
    code, out, err = end(start(script, "--port", "0", "--log", str(tmp_path / "file/program.log")))
    assert (code, out) == (4, b"a\nb\n")
    assert err.count("cannot write") == 1
