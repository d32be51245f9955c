"""`rlt` against the real API server and the operator: jobs handed in, watched, changed and deleted.

- data is on standard output, talk on standard error, and exit codes are as documented;
- what is not there is named, with the command to go on with.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import observed as o
import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.forwarder import Forwarder
from apiserver.in_cluster import Kubernetes, Operator

pytestmark = pytest.mark.apiserver


def test_a_job_is_handed_in_and_shown(rlt: Rlt, job_file: str, operator: Operator) -> None:
    assert rlt("submit", job_file).stdout == "sum\n"
    rlt("wait", "sum", "--for", "Accepted", "--timeout", "60s")
    assert rlt("get").stdout.splitlines()[1].split()[:2] == ["sum", "Pending"]
    assert json.loads(rlt("get", "sum", "-o", "json").stdout)["spec"] == o.SPEC
    page = rlt("status", "sum").stdout
    assert "CONDITION" in page
    assert "ClusterReady" in page


def test_a_wrong_job_is_not_handed_in(rlt: Rlt, job_file: str, tmp_path: Path) -> None:
    wrong: dict[str, Any] = yaml.safe_load(Path(job_file).read_text())
    wrong["spec"] = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 7}}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    done = rlt("submit", str(tmp_path / "wrong.yaml"), expected=1)
    assert "spec.training.trainBatchSize" in done.stderr
    assert "no jobs" in rlt("get").stderr


def test_suspend_wait_resume_and_delete(rlt: Rlt, job_file: str, operator: Operator, namespace: str) -> None:
    rlt("submit", job_file)
    assert json.loads(rlt("suspend", "sum", "-o", "json").stdout)["spec"]["suspend"] is True
    done = rlt("wait", "sum", "--for", "Suspended", "--timeout", "60s", "-o", "json")
    assert json.loads(done.stdout)["status"]["phase"] == "Suspended"
    rlt("resume", "sum")
    late = rlt("wait", "sum", "--for", "Succeeded", "--timeout", "1s", expected=2)
    assert late.stderr.endswith(f"next: rlt status sum -n {namespace}\n")
    assert "asks" in rlt("delete", "sum", expected=1).stderr
    rlt("delete", "sum", "--yes")
    assert "There is no RLTrainingJob sum" in rlt("status", "sum", expected=1).stderr


def test_a_cancelled_job_fails_and_waiting_for_it_ends(rlt: Rlt, job_file: str, operator: Operator) -> None:
    rlt("submit", job_file)
    rlt("cancel", "sum")
    assert "pendingDeadlineSeconds" in rlt("wait", "sum", "--timeout", "60s", expected=1).stderr
    assert "has ended already" in rlt("cancel", "sum", expected=1).stderr
    assert rlt("watch", "sum", expected=1).stdout.startswith("Failed: ")


def test_what_needs_a_running_job_says_so(rlt: Rlt, job_file: str, operator: Operator) -> None:
    rlt("submit", job_file)
    rlt("wait", "sum", "--for", "Accepted", "--timeout", "60s")
    for command in ("logs", "metrics", "rollouts"):
        assert "next: rlt status sum" in rlt(command, "sum", expected=1).stderr


def test_waiting_outlives_an_api_server_that_is_away(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    rlt("submit", job_file)
    with Forwarder(kubernetes.cluster.kubeconfig) as there:
        by = ("-n", namespace, "--kubeconfig", str(there.kubeconfig(tmp_path)))
        arguments = ["wait", "sum", "--for", "Suspended", *by]
        command = [sys.executable, "-m", "rlt_cli.main", *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr
            assert waiting.stderr.readline().startswith("waiting for Suspended: ")
            there.cut()
            assert any(line.startswith("waiting for the API server: ") for line in waiting.stderr)
            rlt("suspend", "sum")
            there.mend()
            assert waiting.wait(timeout=60) == 0


def test_on_a_terminal_the_page_is_kept_up_to_date_until_ctrl_c(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str, operator: Operator
) -> None:
    rlt("submit", job_file)
    by = ["-n", namespace, "--kubeconfig", str(kubernetes.cluster.kubeconfig)]
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts background jobs deaf to it
        command = [sys.executable, "-m", "rlt_cli.main", "watch", "sum", *by]
        os.execve(command[0], command, {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"})
    with os.fdopen(terminal, "r+b", buffering=0) as screen:
        wait_for(screen, b"CONDITION")
        rlt("suspend", "sum")
        wait_for(screen, b"sum  Suspended")
        screen.write(b"\x03")
        wait_for(screen, f"detached; the job goes on. Back: rlt watch sum -n {namespace}".encode())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130


def wait_for(screen: IO[bytes], words: bytes) -> None:
    """Read until the words are there. Raises OSError if the program ends before."""
    seen = b""
    deadline = time.monotonic() + 60
    while words not in seen:
        assert select.select([screen], [], [], deadline - time.monotonic())[0], seen.decode()
        seen += screen.read(4096)


def test_a_cluster_that_does_not_know_jobs_says_so(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Paths below an address that is not the API server's own are 404, as those of a CRD that is not installed."""
    config = yaml.safe_load(kubernetes.cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] += "/nowhere"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "rlt_cli.main", "get", "--kubeconfig", str(tmp_path / "kubeconfig")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: This cluster knows no RLTrainingJob")
    assert f"next: rlt version --server --kubeconfig {tmp_path}/kubeconfig\n" in done.stderr


def test_no_way_to_a_cluster_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlt_cli.main", "get", "--kubeconfig", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: There is no way to a cluster")
    assert "Traceback" not in done.stderr
