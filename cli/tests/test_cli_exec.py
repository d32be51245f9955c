"""The call of kubectl by rlt exec. e2e/tests/test_cli.py runs a command in a pod."""

from __future__ import annotations

from rlt.kube_context import KubeContext
from rlt_cli.pod_commands import build_command

POD = {
    "metadata": {"name": "sum-head", "namespace": "demo"},
    "spec": {"containers": [{"name": "ray-head"}, {"name": "sidecar"}]},
}


def test_options_of_the_command_are_not_kubectls() -> None:
    context = KubeContext(None, "gpu", None)
    assert build_command(POD, ("ray", "list", "tasks", "-n", "5"), context, stdin=True) == [
        *("kubectl", "exec", "--context", "gpu", "--namespace", "demo", "--stdin", "sum-head"),
        *("--container", "ray-head", "--", "ray", "list", "tasks", "-n", "5"),
    ]


def test_a_terminal_is_passed_on() -> None:
    context = KubeContext("demo", None, "/etc/kubeconfig")
    call = build_command(POD, ("bash",), context, stdin=True, terminal=True)
    assert call[2:4] == ["--kubeconfig", "/etc/kubeconfig"]
    assert "--tty" in call
