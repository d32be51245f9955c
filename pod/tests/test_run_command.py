"""run_command.py in real processes: progress, signals and exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import observed as o
import pytest
import yaml
from apiserver.waiting import eventually
from command_wrapper import PRINT_SIGNALS, Start, end, fetch, prints
from gate import Gate
from verl_output import VERL_LINE

from rlt_api.spec.training_config import PROGRAMS_FILE, ProgressReport
from rlt_api.validation.validate import validate_job
from rlt_core.entrypoint import build_run_command_arguments
from rlt_e2e.ports import free_port
from rlt_operator.diagnosis.progress import parse_last_report
from rlt_pod.report.driver_report import PROGRESS_PREFIX

GUIDE = Path(__file__).parents[2] / "docs/command-jobs.md"


def test_the_job_of_the_guide_is_valid_with_each_other_example() -> None:
    job, *others = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    assert others
    for other in (job["spec"], *others):
        spec = {**job["spec"], **{block: {**job["spec"][block], **given} for block, given in other.items()}}
        assert validate_job(job["metadata"]["name"], spec).findings == ()


def test_progress_is_served_while_the_command_runs(start: Start, gate: Gate) -> None:
    port = free_port()
    script = f"print('Total training steps: 624')\nprint({VERL_LINE!r})\n{gate.wait}"
    process = start(script, "--port", str(port), "--job", "sum", "--namespace", "demo")
    text = eventually("step 34", lambda: (body := fetch(port, "/progress")) and '"step": 34' in body and body)
    report = ProgressReport.model_validate_json(text)
    assert (report.total_steps, report.metrics.kl) == (624, 0.0013280365410537343)
    assert 'rlt_trainer_reward_mean{job="sum",namespace="demo"} -0.0182796623557806\n' in str(fetch(port, "/metrics"))
    assert fetch(port, "/healthz") == "ok\n"
    gate.open()
    assert end(process)[0] == 0


def test_progress_needs_the_token_of_ray(start: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a-token")
    port = free_port()
    process = start(f"print({VERL_LINE!r})\n{gate.wait}", "--port", str(port))
    eventually("an answer", lambda: fetch(port, "/metrics"))
    url = f"http://127.0.0.1:{port}/progress"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, timeout=10)
    eventually("the report", lambda: fetch(port, "/progress", "a-token"))
    gate.open()
    assert end(process)[0] == 0


def test_unknown_progress_is_503(start: Start, gate: Gate) -> None:
    port = free_port()
    process = start(gate.wait, "--port", str(port))
    eventually("an answer", lambda: fetch(port, "/healthz"))
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/progress", timeout=10)
    gate.open()
    assert end(process)[0] == 0


def test_the_last_line_is_the_report(start: Start) -> None:
    bar = "Training Progress:  50%|##  | 2/4 [00:05<00:05,  2.5s/it]"
    script = f"print('step:1 - a:1')\nprint({bar!r}, end='\\r')\nprint('step:2 - critic/rewards/mean:0.5', end='')"
    code, out, _ = end(start(script, "--port", str(free_port())))
    assert code == 0
    assert out.decode().splitlines()[-1].startswith(PROGRESS_PREFIX)
    last = parse_last_report(out.decode())
    assert last
    assert (last.stage, last.step, last.total_steps, last.metrics.reward) == ("finished", 2, 4, 0.5)


def test_the_rules_over_metrics_come_from_the_job(start: Start) -> None:
    job = o.job(
        {**o.COMMAND_SPEC, "observability": {"metricRules": {"entropyCollapse": {"threshold": 0.5, "steps": 1}}}}
    )
    assert job.spec
    arguments = build_run_command_arguments(job, job.spec)
    options = arguments[arguments.index("--metric-rules") : arguments.index("--")]
    output = end(start("print('step:3 - actor/entropy:0.4')", "--port", "0", *options))[1].decode()
    report = json.loads(output.splitlines()[-1].removeprefix(PROGRESS_PREFIX))
    assert [each["rule"] for each in report["brokenRules"]] == ["entropyCollapse"]


def test_a_failed_command_is_not_finished(start: Start) -> None:
    code, out, _ = end(start("print('step:1 - a:1')\nraise SystemExit(3)", "--total-steps", "9", "--port", "0"))
    last = parse_last_report(out.decode())
    assert last
    assert (code, last.stage, last.step, last.total_steps) == (3, "training", 1, 9)


@pytest.mark.parametrize(
    ("script", "code"), [("raise SystemExit(200)", 200), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_the_commands(start: Start, script: str, code: int) -> None:
    assert end(start(script, "--port", str(free_port()))) == (code, b"", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_its_children(start: Start, number: signal.Signals) -> None:
    child = f"{PRINT_SIGNALS}sys.stdin.readline()\nprint('child')\nsignal.pause()"
    script = (
        f"import subprocess\nchild = subprocess.Popen([sys.executable, '-uc', {child!r}], stdin=subprocess.PIPE)\n"
        "try:\n child.stdin.write(b'\\n')\n child.stdin.flush()\n signal.pause()\n"
        "finally: print('child ended', child.wait())"
    )
    process = start(PRINT_SIGNALS + script, "--port", str(free_port()))
    assert prints(process, b"child\n")
    process.send_signal(number)
    code, out, _ = end(process)
    assert code == 7
    assert out.count(f"got {number}\n".encode()) == 2
    assert b"child ended 7\n" in out


def test_a_handled_signal_ends_nothing(start: Start, gate: Gate) -> None:
    process = start(
        f"import signal\nsignal.signal(15, lambda n, f: print('no'))\nprint('up')\n{gate.wait}", "--port", "0"
    )
    assert prints(process, b"up\n")
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        assert prints(process, b"no\n")
    gate.open()
    assert end(process)[0] == 0


def test_the_command_is_in_the_process_group_that_ray_kills(start: Start) -> None:
    process = start("import os; print(os.getpgrp())", "--port", str(free_port()))
    assert end(process)[1] == f"{process.pid}\n".encode()


def test_a_remaining_child_of_the_command_does_not_block_the_exit(start: Start) -> None:
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
def test_a_program_that_cannot_run_is_an_error(mounted: Path, program: str, code: int) -> None:
    command = [sys.executable, str(mounted / PROGRAMS_FILE), "run-command", "--no-progress", "--", program, "--", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr.startswith(f"run_command: {program}: ")


def test_a_port_in_use_disables_only_the_progress(start: Start, gate: Gate) -> None:
    port = free_port()
    first = start(gate.wait, "--port", str(port))
    eventually("an answer", lambda: fetch(port, "/healthz"))
    code, out, err = end(start("print('step:1 - a:1')", "--port", str(port)))
    assert code == 0
    assert parse_last_report(out.decode())
    assert err.startswith(f"run_command: no /progress and no /metrics, because port {port} is not available: Address")
    gate.open()
    assert end(first)[0] == 0


def old_pythons() -> list[str]:
    """Installed interpreters that are older than the minimum of rlt, one per version."""
    found = {
        version: next(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")), None)
        or shutil.which(f"python{version}")
        for version in ("3.8", "3.9", "3.10")
    }
    # A version manager has shims also for versions that are not installed.
    return [
        path for path in found.values() if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode
    ]


@pytest.mark.skipif(not old_pythons(), reason="Python 3.8, 3.9 and 3.10 are not installed")
@pytest.mark.parametrize("python", old_pythons())
def test_it_runs_on_an_old_python_without_packages(start: Start, gate: Gate, python: str) -> None:
    port = free_port()
    script = f"print({VERL_LINE!r})\n{gate.wait}"
    process = start(script, "--port", str(port), "--total-steps", "40", python=python)
    text = eventually("the step's report", lambda: (body := fetch(port, "/progress") or "") * ("reward" in body))
    assert json.loads(text)["metrics"]["reward"] == -0.0182796623557806
    assert fetch(port, "/metrics")
    gate.open()
    assert end(process)[0] == 0
