"""run_command.py in real processes: output, signals, exit code and progress."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml
from apiserver.ports import free_port
from apiserver.waiting import eventually
from gate import Gate
from job_specs import merged
from openrlhf_jobs import OPENRLHF
from verl_jobs import VERL
from verl_output import VERL_LINE

from rlt_api.driver_report import PROGRESS_PREFIX
from rlt_api.status import CheckpointStatus
from rlt_api.training_config import ProgressReport
from rlt_api.validation import validate_job
from rlt_core.children.config_map import PROGRAM_FILES, ROLL_FILES, build_config_map, build_config_volume
from rlt_core.command.checkpoints import read_latest_step
from rlt_core.entrypoint import build_entrypoint, build_run_command_arguments, find_checkpoint_directory
from rlt_core.knowledge.diagnosis import diagnose_logs
from rlt_operator.diagnosis.progress import build_checkpoint, parse_last_report

GUIDE = Path(__file__).parents[2] / "docs/command-jobs.md"


def test_the_job_of_the_guide_is_valid_with_each_other_example() -> None:
    job, *others = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    assert others
    for other in (job["spec"], *others):
        spec = {**job["spec"], **{block: {**job["spec"][block], **given} for block, given in other.items()}}
        assert validate_job(job["metadata"]["name"], spec).findings == ()


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ConfigMap volume as the kubelet lays it out: all names are links through ..data to a folder."""
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
    """Start run_command.py with options and a Python script as its command."""
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


PRINT_SIGNALS = (
    "import os, signal, sys\n"
    "for s in (2, 15): signal.signal(s, lambda n, f: (os.write(1, b'got %d\\n' % n), sys.exit(7)))\n"
)


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Wait for the process. Return exit code, standard output and standard error."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err.decode()


def fetch(port: int, path: str, token: str = "") -> str | None:
    headers = {"X-Ray-Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:  # including HTTPError
        return None


def prints(process: subprocess.Popen[bytes], text: bytes) -> bool:
    """Read until the output contains the text. False if it ends without."""
    assert process.stdout
    seen = b""
    while text not in seen:
        chunk = os.read(process.stdout.fileno(), 1000)
        if not chunk:
            return False
        seen += chunk
    return True


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


def test_checkpoints_of_verl_are_reported(start: Start, tmp_path: Path) -> None:
    script = f"""
import os
print({VERL_LINE!r}, flush=True)
os.mkdir("checkpoints")
print(35, end="", file=open("checkpoints/latest_checkpointed_iteration.txt", "w"))
print({VERL_LINE.replace("step:34", "step:35")!r})
"""
    out = end(start(script, "--checkpoints", str(tmp_path / "checkpoints")))[1].decode()
    report = parse_last_report(out)
    assert report
    assert (report.step, report.latest_checkpoint_step) == (35, 35)
    folder = str(tmp_path / "checkpoints")
    assert build_checkpoint(report, "/mnt/rlt/runs/sum") == CheckpointStatus(latest_step=35, path=folder)


SAVE = """
import os
print("step:3 - critic/score/mean:1", flush=True)
os.makedirs("checkpoints/global_step_3")
print(3, end="", file=open("checkpoints/latest_checkpointed_iteration.txt", "w"))
"""
EXPORT = """
import os, sys
print("exporting", sys.argv[1])
os.mkdir("model")
open("model/config.json", "w").close()
"""


def export_options(folder: Path, script: str) -> list[str]:
    command = [sys.executable, "-c", script, f"{folder}/checkpoints/global_step_{{step}}"]
    directory = str(folder / "model")
    options = ["--checkpoints", str(folder / "checkpoints"), "--export-directory", directory]
    return [*options, "--export", json.dumps(command)]


def test_the_latest_checkpoint_is_exported_after_the_training(start: Start, tmp_path: Path) -> None:
    code, out, _ = end(start(SAVE, *export_options(tmp_path, EXPORT)))
    report = parse_last_report(out.decode())
    assert f"exporting {tmp_path}/checkpoints/global_step_3\n" in out.decode()
    assert report
    assert (code, report.stage, report.exported_path) == (0, "finished", str(tmp_path / "model"))


@pytest.mark.parametrize(("script", "code"), [(SAVE, 9), (f"{SAVE}sys.exit(7)", 7), ("", 0)])
def test_a_training_or_export_that_fails_exports_nothing(start: Start, tmp_path: Path, script: str, code: int) -> None:
    """The exit code is that of the part that failed. Without a checkpoint there is nothing to export."""
    failing = f"{EXPORT.replace('mkdir', 'path.exists').partition('open')[0]}sys.exit(9)"
    returned, out, _ = end(start(f"import sys{script}", *export_options(tmp_path, failing)))
    report = parse_last_report(out.decode())
    assert (returned, report and report.exported_path) == (code, None)
    assert (b"exporting" in out) == (code == 9)


@pytest.mark.parametrize("content", [None, "", "many"])
def test_unreadable_tracker_is_no_checkpoint(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(content)
    assert read_latest_step(str(tmp_path)) is None


def test_the_tracker_of_deepspeed_names_the_step(tmp_path: Path) -> None:
    (tmp_path / "_actor").mkdir()
    (tmp_path / "_actor/latest").write_text("global_step40")
    assert read_latest_step(str(tmp_path)) == 40


def test_verl_writes_its_checkpoints_where_they_are_read() -> None:
    job = o.job(VERL)
    assert job.spec
    words = shlex.split(build_entrypoint(job, job.spec))
    folder = words[words.index("--checkpoints") + 1]
    assert f"trainer.default_local_dir={folder}" in words
    assert words[words.index("--") + 1 :][:3] == ["python3", "-m", "verl.trainer.main_ppo"]


def list_export_words(spec: dict[str, Any]) -> list[str]:
    job = o.job(spec)
    assert job.spec
    words = shlex.split(build_entrypoint(job, job.spec))
    return words[: words.index("--")]


@pytest.mark.parametrize(("overrides", "backend"), [([], "fsdp"), (["model_engine=megatron"], "megatron")])
def test_verls_model_merger_runs_on_a_worker(overrides: list[str], backend: str) -> None:
    words = list_export_words(merged(VERL, {"framework.overrides": overrides, "model.trustRemoteCode": True}))
    command, folder = json.loads(words[words.index("--export") + 1]), words[words.index("--checkpoints") + 1]
    on_a_worker = ["ray", "job", "submit", "--entrypoint-num-gpus", "1", "--"]
    assert command[:8] == [*on_a_worker, "python3", "-m"]
    assert command[8:] == [
        *("verl.model_merger", "merge", "--backend", backend, "--local_dir", f"{folder}/global_step_{{step}}/actor"),
        *("--target_dir", words[words.index("--export-directory") + 1], "--trust-remote-code"),
    ]


def test_openrlhf_exports_by_itself_and_verl_without_checkpoints_nothing() -> None:
    words = list_export_words(OPENRLHF)
    assert words[words.index("--export-directory") + 1].endswith("/model")
    assert "--export" not in words
    assert "--export-directory" not in list_export_words(merged(VERL, {"checkpoint.saveFreq": -1}))


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["verl.trainer.main_ppo", "trainer.default_local_dir=/checkpoints/a"], "/checkpoints/a"),
        (["verl.trainer.main_ppo", "trainer.default_local_dir=checkpoints"], None),
        (["verl.trainer.main_ppo", "trainer.default_local_dir=$DIR/a"], None),
        (["openrlhf.cli.train_ppo_ray", "--ckpt.path", "/checkpoints/b"], "/checkpoints/b"),
        (["train"], None),
    ],
)
def test_checkpoints_of_a_command_are_found(arguments: list[str], folder: str | None) -> None:
    job = o.job({**o.COMMAND_SPEC, "framework": {"type": "command", "command": ["python3", "-m", *arguments]}})
    assert job.spec
    assert find_checkpoint_directory(job, job.spec) == folder


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


def test_the_last_line_is_the_report(start: Start) -> None:
    bar = "Training Progress:  50%|##  | 2/4 [00:05<00:05,  2.5s/it]"
    script = f"print('step:1 - a:1')\nprint({bar!r}, end='\\r')\nprint('step:2 - critic/rewards/mean:0.5', end='')"
    code, out, _ = end(start(script, "--port", str(free_port())))
    assert code == 0
    assert out.decode().splitlines()[-1].startswith(PROGRESS_PREFIX)
    last = parse_last_report(out.decode())
    assert last
    assert (last.stage, last.step, last.total_steps, last.metrics.reward) == ("finished", 2, 4, 0.5)


def test_the_rules_over_metrics_are_those_of_the_job(start: Start) -> None:
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
def test_the_exit_code_is_that_of_the_command(start: Start, script: str, code: int) -> None:
    assert end(start(script, "--port", str(free_port()))) == (code, b"", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_its_children(start: Start, number: signal.Signals) -> None:
    child = f"{PRINT_SIGNALS}print('child')\nsignal.pause()"
    script = (
        f"import subprocess\nchild = subprocess.Popen([sys.executable, '-uc', {child!r}])\n"
        "try: signal.pause()\nfinally: print('child ended', child.wait())"
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


def test_a_command_that_closes_its_output_continues(start: Start, gate: Gate, tmp_path: Path) -> None:
    process = start(f"import os\nos.close(1); os.close(2)\n{gate.wait}os.mkdir('gone'); os._exit(5)", "--port", "0")
    gate.open()
    assert end(process)[0] == 5
    assert (tmp_path / "gone").exists()


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
    command = [sys.executable, str(mounted / "run_command.py"), "--", program, "--", "x"]
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


def test_a_full_disk_does_not_end_the_command(mounted: Path) -> None:
    command = [sys.executable, str(mounted / "run_command.py"), "--port", "0", "--"]
    command += [sys.executable, "-uc", "print('a'); print('b'); raise SystemExit(4)"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 4
    assert done.stderr.count("No space left on device") == 1


def test_the_output_is_kept_in_a_file(start: Start, tmp_path: Path) -> None:
    """Appended to that of the run before a suspension, with the last report. The exit code is unchanged."""
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
    log, port = tmp_path / "program.log", free_port()
    script = f"import socket\nsocket.create_server(('', {port}))\nprint('step:1 - a:1')"
    assert end(start(script, "--no-progress", "--port", str(port), "--log", str(log))) == (0, b"step:1 - a:1\n", "")
    assert log.read_bytes() == b"step:1 - a:1\n"


NCCL_LOG = """sum-workers-{0}:73:196 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.{0}<0>
sum-workers-{0}:73:196 [0] ibvwrap.cc:173 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory
sum-workers-{0}:73:196 [0] NCCL INFO ncclCommInitRank comm 0x55d0c0 rank {0} nranks 2 - Init ABORT
"""


@pytest.mark.parametrize("code", [1, 0])
def test_the_output_of_a_failed_program_has_the_warnings_in_the_files_of_nccl(
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


def test_the_modules_have_the_syntax_of_python_3_8(mounted: Path) -> None:
    modules = list((mounted / "..data").rglob("*.py"))
    assert len(modules) == len(PROGRAM_FILES | ROLL_FILES)
    for module in modules:
        ast.parse(module.read_text(), str(module), feature_version=(3, 8))


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
