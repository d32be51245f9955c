"""`rlt` with the real API server and the operator: submit, watch, change and delete jobs.

- data goes to standard output, messages to standard error, and exit codes are as documented;
- an error about a missing object names the object and the next command.
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

from rlt_core.children.pod_template import NO_FABRIC

pytestmark = pytest.mark.apiserver


def test_a_job_is_submitted_and_shown(rlt: Rlt, job_file: str, operator: Operator) -> None:
    assert rlt("submit", job_file).stdout == "sum\n"
    rlt("wait", "sum", "--for", "Accepted", "--timeout", "300s")
    assert rlt("get").stdout.splitlines()[1].split()[:2] == ["sum", "Pending"]
    assert json.loads(rlt("get", "sum", "-o", "json").stdout)["spec"] == o.SPEC
    page = rlt("status", "sum").stdout
    assert "CONDITION" in page
    assert "ClusterReady" in page


def test_an_invalid_job_is_not_submitted(rlt: Rlt, job_file: str, tmp_path: Path) -> None:
    invalid: dict[str, Any] = yaml.safe_load(Path(job_file).read_text())
    invalid["spec"] = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 0}}
    (tmp_path / "invalid.yaml").write_text(yaml.safe_dump(invalid))
    done = rlt("submit", str(tmp_path / "invalid.yaml"), expected=1)
    assert "spec.training.trainBatchSize" in done.stderr
    assert "no jobs" in rlt("get").stderr


def test_suspend_wait_resume_and_delete(rlt: Rlt, job_file: str, operator: Operator, namespace: str) -> None:
    rlt("submit", job_file)
    assert json.loads(rlt("suspend", "sum", "-o", "json").stdout)["spec"]["suspend"] is True
    done = rlt("wait", "sum", "--for", "Suspended", "--timeout", "300s", "-o", "json")
    assert json.loads(done.stdout)["status"]["phase"] == "Suspended"
    rlt("resume", "sum")
    late = rlt("wait", "sum", "--for", "Succeeded", "--timeout", "1s", expected=2)
    assert late.stderr.endswith(f"next: rlt status sum -n {namespace}\n")
    assert "requires confirmation" in rlt("delete", "sum", expected=1).stderr
    rlt("delete", "sum", "--yes")
    assert "RLTrainingJob sum does not exist" in rlt("status", "sum", expected=1).stderr


def test_a_cancelled_job_fails_and_wait_ends(rlt: Rlt, job_file: str, operator: Operator) -> None:
    rlt("submit", job_file)
    rlt("cancel", "sum")
    assert "sum: Failed: The job was cancelled" in rlt("wait", "sum", "--timeout", "300s", expected=1).stderr
    assert "has already ended" in rlt("cancel", "sum", expected=1).stderr
    assert rlt("watch", "sum", expected=1).stdout.startswith("Failed: The job was cancelled")
    assert "! Cancelled: " in rlt("status", "sum").stdout
    report = rlt("report", "sum", "--markdown")
    assert report.stdout.startswith("## sum\n\n**Failed**: The job was cancelled")
    assert "note: sum: No metrics and no rollouts: " in report.stderr


def test_a_suspended_job_can_be_cancelled(rlt: Rlt, job_file: str, operator: Operator) -> None:
    rlt("submit", job_file)
    rlt("suspend", "sum")
    rlt("wait", "sum", "--for", "Suspended", "--timeout", "300s")
    job = json.loads(rlt("cancel", "sum", "-o", "json").stdout)
    assert job["metadata"]["annotations"]["rlt.dev/cancel"] == "true"
    assert "The job was cancelled" in rlt("wait", "sum", "--timeout", "300s", expected=1).stderr


def test_commands_that_require_a_running_job_fail_with_the_next_command(
    rlt: Rlt, job_file: str, operator: Operator
) -> None:
    rlt("submit", job_file)
    rlt("wait", "sum", "--for", "Accepted", "--timeout", "300s")
    for command in ("logs", "metrics", "rollouts"):
        assert "next: rlt status sum" in rlt(command, "sum", expected=1).stderr


def test_wait_continues_after_the_api_server_was_unavailable(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    rlt("submit", job_file)
    with Forwarder(kubernetes.cluster.kubeconfig) as forwarder:
        by = ("-n", namespace, "--kubeconfig", str(forwarder.kubeconfig(tmp_path)))
        arguments = ["wait", "sum", "--for", "Suspended", *by]
        command = [sys.executable, "-m", "rlt_cli.main", *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr
            assert waiting.stderr.readline().startswith("waiting for Suspended: ")
            forwarder.disconnect()
            assert any(line.startswith("waiting for the API server: ") for line in waiting.stderr)
            rlt("suspend", "sum")
            forwarder.connect()
            assert waiting.wait(timeout=300) == 0


def test_on_a_terminal_watch_updates_the_page_until_ctrl_c(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str, operator: Operator
) -> None:
    rlt("submit", job_file)
    by = ["-n", namespace, "--kubeconfig", str(kubernetes.cluster.kubeconfig)]
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job of a shell ignores it
        command = [sys.executable, "-m", "rlt_cli.main", "watch", "sum", *by]
        os.execve(command[0], command, {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"})
    with os.fdopen(terminal, "r+b", buffering=0) as screen:
        wait_for(screen, b"spec accepted")
        rlt("suspend", "sum")
        wait_for(screen, b"Suspended")
        screen.write(b"\x03")
        wait_for(screen, f"detached; the job continues. To reattach: rlt watch sum -n {namespace}".encode())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130


def test_an_export_is_a_job_of_kubernetes_that_belongs_to_the_training_job(
    kubernetes: Kubernetes, rlt: Rlt, namespace: str
) -> None:
    kubernetes.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    kubernetes.create_job(namespace, {**o.SPEC, "storage": {"claimName": "runs"}})
    assert "status.checkpoint.latestStep is absent" in rlt("export", "sum", expected=1).stderr
    patch = json.dumps({"status": {"checkpoint": {"latestStep": 20}}})
    by = ("-n", namespace, "--subresource=status", "--type=merge")
    kubernetes.kubectl("patch", "rltrainingjob", "sum", *by, "-p", patch)
    rlt("export", "sum", "--dry-run")
    assert kubernetes.get(namespace, "job", "sum-export-20") is None

    done = rlt("export", "sum")
    assert done.stdout.startswith("sum-export-20 created: /mnt/rlt/runs/sum-")
    created, owner = (kubernetes.get(namespace, *each) for each in (("job", "sum-export-20"), ("rltrainingjob", "sum")))
    assert created
    assert owner
    (reference,) = created["metadata"]["ownerReferences"]
    assert reference["uid"] == owner["metadata"]["uid"]
    pod = {"apiVersion": "v1", "kind": "Pod", **created["spec"]["template"]}
    pod["metadata"] = {"name": "export", "namespace": namespace}
    kubernetes.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    assert "Job sum-export-20 exists" in rlt("export", "sum", expected=1).stderr


def test_a_model_server_is_accepted_in_a_restricted_namespace(kubernetes: Kubernetes, rlt: Rlt, namespace: str) -> None:
    kubernetes.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    kubernetes.create_job(namespace, {**o.SPEC, "storage": {"claimName": "runs"}})
    assert "status.checkpoint.exportedPath is absent" in rlt("serve", "sum", "--render", expected=1).stderr
    status = {"checkpoint": {"exportedPath": "/mnt/rlt/runs/a/export"}, "network": NO_FABRIC.to_json()}
    by = ("-n", namespace, "--subresource=status", "--type=merge")
    kubernetes.kubectl("patch", "rltrainingjob", "sum", *by, "-p", json.dumps({"status": status}))
    rendered = rlt("serve", "sum", "--render").stdout
    created = kubernetes.kubectl(
        *("create", "--dry-run=server", "--validate=strict", "-f", "-", "-o", "name"), input=rendered
    )
    assert created.split() == ["deployment.apps/sum-model", "service/sum-model"]
    deployment, _ = yaml.safe_load_all(rendered)
    pod = {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
    pod["metadata"] |= {"name": "model", "namespace": namespace}
    kubernetes.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))


def wait_for(screen: IO[bytes], text: bytes) -> None:
    """Read until the text is on the screen. Raises OSError if the program exits before that."""
    seen = b""
    deadline = time.monotonic() + 60
    while text not in seen:
        assert select.select([screen], [], [], deadline - time.monotonic())[0], seen.decode()
        seen += screen.read(4096)


def test_a_cluster_without_the_crd_is_an_error(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Unknown paths of the API server return 404, as the paths of a CRD that is not installed."""
    config = yaml.safe_load(kubernetes.cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] += "/nowhere"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "rlt_cli.main", "get", "--kubeconfig", str(tmp_path / "kubeconfig")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: The RLTrainingJob CRD is not installed in this cluster")
    assert f"next: rlt version --server --kubeconfig {tmp_path}/kubeconfig\n" in done.stderr


def test_no_kubeconfig_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlt_cli.main", "get", "--kubeconfig", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Cannot connect to a cluster")
    assert "Traceback" not in done.stderr
