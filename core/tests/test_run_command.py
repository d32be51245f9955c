"""A command is run as if it ran alone, and its progress is served. The processes are real ones."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import observed as o
import pytest
import yaml
from apiserver.in_cluster import eventually, free_port
from gate import Gate
from verl_output import VERL_LINE

from rlt_api.driver_report import PROGRESS_PREFIX
from rlt_api.training_config import ProgressReport
from rlt_api.validation import validate_job
from rlt_core.children.config_map import COMMAND_FILES, build_config_map, build_config_volume
from rlt_operator.diagnosis.progress import last_report

GUIDE = Path(__file__).parents[2] / "docs/command-jobs.md"


def test_the_guides_job_is_valid_with_either_of_its_workers() -> None:
    job, other = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    for workers in (job["spec"]["cluster"]["workers"], other["cluster"]["workers"]):
        spec = {**job["spec"], "cluster": {**job["spec"]["cluster"], "workers": workers}}
        assert validate_job(job["metadata"]["name"], spec).findings == ()


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ConfigMap's volume as the kubelet lays it out: all names lead through ..data to a folder."""
    job = o.job(o.COMMAND_SPEC)
    assert job.spec
    volume = tmp_path_factory.mktemp("volume")
    (volume / "..data").symlink_to("..2026")
    for item in build_config_volume(job, job.spec)["items"]:
        file = volume / "..2026" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(build_config_map(job, job.spec)["data"][item["key"]])
        top = Path(item["path"]).parts[0]
        if not (volume / top).is_symlink():
            (volume / top).symlink_to(f"..data/{top}")
    return volume


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(mounted: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts the program with options and a Python script as its command."""
    started: list[subprocess.Popen[bytes]] = []

    def run(script: str, *options: str, python: str = sys.executable) -> subprocess.Popen[bytes]:
        command = [python, str(mounted / "run_command.py"), *options, "--", sys.executable, "-uc", script]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


SAY_SIGNALS = (
    "import os, signal, sys\n"
    "for s in (2, 15): signal.signal(s, lambda n, f: (os.write(1, b'got %d\\n' % n), sys.exit(7)))\n"
)


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Exit code, standard output and standard error, once it has ended."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err.decode()


def fetch(port: int, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:  # HTTPError, too
        return None


def printed(process: subprocess.Popen[bytes], text: bytes) -> bool:
    """Read on until the text has come; False if the output ends without it."""
    assert process.stdout
    seen = b""
    while text not in seen:
        piece = os.read(process.stdout.fileno(), 1000)
        if not piece:
            return False
        seen += piece
    return True


def test_progress_is_served_while_the_command_runs(start: Start, gate: Gate) -> None:
    port = free_port()
    script = f"print('Total training steps: 624')\nprint({VERL_LINE!r})\n{gate.wait}"
    process = start(script, "--port", str(port), "--job", "sum", "--namespace", "demo")
    text = eventually("step 34", lambda: (said := fetch(port, "/progress")) and '"step": 34' in said and said)
    said = ProgressReport.model_validate_json(text)
    assert (said.total_steps, said.metrics.kl) == (624, 0.0013280365410537343)
    assert 'rlt_trainer_reward_mean{job="sum",namespace="demo"} -0.0182796623557806\n' in str(fetch(port, "/metrics"))
    assert fetch(port, "/healthz") == "ok\n"
    gate.open()
    assert end(process)[0] == 0


def test_progress_that_is_not_known_yet_is_said_to_be_so(start: Start, gate: Gate) -> None:
    port = free_port()
    process = start(gate.wait, "--port", str(port))
    eventually("an answer", lambda: fetch(port, "/healthz"))
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/progress", timeout=10)
    gate.open()
    assert end(process)[0] == 0


def test_the_output_passes_unchanged(start: Start) -> None:
    output = b"one\r\n\xff\xfe \xc3\x28\r 10%|\r 20%|\n\x00" + b"x" * 2_000_000 + b"\nno end of line"
    script = f"import sys\nsys.stdout.buffer.write({output[:30]!r} + b'x' * 2_000_000 + {output[-16:]!r})"
    expected = output[:30] + b"x" * 2_000_000 + output[-16:]
    assert end(start(script, "--port", str(free_port())))[:2] == (0, expected)


def test_standard_error_stands_where_it_was_printed(start: Start) -> None:
    script = "import os\nfor text in (b'a', b'b', b'c'): os.write(1, text); os.write(2, text)"
    assert end(start(script, "--port", str(free_port()))) == (0, b"aabbcc", "")


def test_a_part_of_a_line_is_not_held_back(start: Start, gate: Gate) -> None:
    process = start(f"print('loading: 10%', end='\\r')\nprint('loading: 2', end='')\n{gate.wait}", "--port", "0")
    assert printed(process, b"loading: 10%\rloading: 2")
    gate.open()
    assert end(process)[0] == 0


def test_the_last_line_is_the_report(start: Start) -> None:
    bar = "Training Progress:  50%|##  | 2/4 [00:05<00:05,  2.5s/it]"
    script = f"print('step:1 - a:1')\nprint({bar!r}, end='\\r')\nprint('step:2 - critic/rewards/mean:0.5', end='')"
    code, out, _ = end(start(script, "--port", str(free_port())))
    assert code == 0
    assert out.decode().splitlines()[-1].startswith(PROGRESS_PREFIX)
    last = last_report(out.decode())
    assert last
    assert (last.stage, last.step, last.total_steps, last.metrics.reward) == ("finished", 2, 4, 0.5)


def test_a_command_that_fails_has_not_finished(start: Start) -> None:
    code, out, _ = end(start("print('step:1 - a:1')\nraise SystemExit(3)", "--total-steps", "9", "--port", "0"))
    last = last_report(out.decode())
    assert last
    assert (code, last.stage, last.step, last.total_steps) == (3, "training", 1, 9)


@pytest.mark.parametrize(
    ("script", "code"), [("raise SystemExit(200)", 200), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_the_commands(start: Start, script: str, code: int) -> None:
    assert end(start(script, "--port", str(free_port()))) == (code, b"", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_its_children(start: Start, number: signal.Signals) -> None:
    child = f"{SAY_SIGNALS}print('child')\nsignal.pause()"
    script = (
        f"import subprocess\nchild = subprocess.Popen([sys.executable, '-uc', {child!r}])\n"
        "try: signal.pause()\nfinally: print('child ended', child.wait())"
    )
    process = start(SAY_SIGNALS + script, "--port", str(free_port()))
    assert printed(process, b"child\n")
    process.send_signal(number)
    code, out, _ = end(process)
    assert code == 7
    assert out.count(f"got {number}\n".encode()) == 2
    assert b"child ended 7\n" in out


def test_a_signal_that_the_command_bears_ends_nothing(start: Start, gate: Gate) -> None:
    process = start(
        f"import signal\nsignal.signal(15, lambda n, f: print('no'))\nprint('up')\n{gate.wait}", "--port", "0"
    )
    assert printed(process, b"up\n")
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        assert printed(process, b"no\n")
    gate.open()
    assert end(process)[0] == 0


def test_the_command_is_in_the_group_that_ray_kills(start: Start) -> None:
    process = start("import os; print(os.getpgrp())", "--port", str(free_port()))
    assert end(process)[1] == f"{process.pid}\n".encode()


def test_a_command_that_closes_its_output_runs_on(start: Start, gate: Gate, tmp_path: Path) -> None:
    process = start(f"import os\nos.close(1); os.close(2)\n{gate.wait}os.mkdir('gone'); os._exit(5)", "--port", "0")
    gate.open()
    assert end(process)[0] == 5
    assert (tmp_path / "gone").exists()


def test_what_the_command_left_behind_does_not_hold_it_up(start: Start) -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid, 'x' * 60_000)"
    process = start(script, "--port", str(free_port()))
    assert process.wait(timeout=60) == 0  # though the pipe is still open
    assert process.stdout
    pid, rest = os.read(process.stdout.fileno(), 2**17).split()
    os.kill(int(pid), signal.SIGKILL)
    assert len(rest) == 60_000


def test_standard_input_is_empty(start: Start) -> None:
    assert end(start("import sys; print([sys.stdin.read()])", "--port", "0"))[1] == b"['']\n"


def test_the_working_directory(start: Start, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    options = ["--port", str(free_port()), "--working-directory"]
    assert end(start("import os; print(os.getcwd())", *options, "work"))[1] == f"{tmp_path / 'work'}\n".encode()
    assert end(start("", *options, "/no/such"))[::2] == (127, "run_command: /no/such: No such file or directory\n")


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/", 126)])
def test_what_cannot_be_run_is_said(mounted: Path, program: str, code: int) -> None:
    command = [sys.executable, str(mounted / "run_command.py"), "--", program, "--", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr.startswith(f"run_command: {program}: ")


def test_a_port_that_is_taken_costs_the_progress_only(start: Start, gate: Gate) -> None:
    port = free_port()
    first = start(gate.wait, "--port", str(port))
    eventually("an answer", lambda: fetch(port, "/healthz"))
    code, out, err = end(start("print('step:1 - a:1')", "--port", str(port)))
    assert code == 0
    assert last_report(out.decode())
    assert err.startswith(f"run_command: no /progress and no /metrics, since port {port} cannot be had: Address")
    gate.open()
    assert end(first)[0] == 0


def test_a_full_disk_does_not_end_the_command(mounted: Path) -> None:
    command = [sys.executable, str(mounted / "run_command.py"), "--port", "0", "--"]
    command += [sys.executable, "-uc", "print('a'); print('b'); raise SystemExit(4)"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 4
    assert done.stderr.count("No space left on device") == 1


def test_the_modules_are_grammatical_in_python_3_8(mounted: Path) -> None:
    modules = list((mounted / "..data").rglob("*.py"))
    assert len(modules) == len(COMMAND_FILES)
    for module in modules:
        ast.parse(module.read_text(), str(module), feature_version=(3, 8))


def old_pythons() -> list[str]:
    """Interpreters of this machine that are older than rlt's own floor, one a version."""
    found = {
        version: next(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")), None)
        or shutil.which(f"python{version}")
        for version in ("3.8", "3.9", "3.10")
    }
    # A version manager's shim is there for versions that are not.
    return [
        path for path in found.values() if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode
    ]


@pytest.mark.skipif(not old_pythons(), reason="there is no Python 3.8, 3.9 or 3.10 here")
@pytest.mark.parametrize("python", old_pythons())
def test_it_runs_on_an_old_python_without_any_package(start: Start, gate: Gate, python: str) -> None:
    port = free_port()
    script = f"print({VERL_LINE!r})\n{gate.wait}"
    process = start(script, "--port", str(port), "--total-steps", "40", python=python)
    said = eventually("the step's report", lambda: (text := fetch(port, "/progress") or "") * ("reward" in text))
    assert json.loads(said)["metrics"]["reward"] == -0.0182796623557806
    assert fetch(port, "/metrics")
    gate.open()
    assert end(process)[0] == 0
