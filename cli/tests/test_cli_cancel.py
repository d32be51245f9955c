"""rlt cancel, with a stub of the connection to the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlt.kube_context import KubeContext
from rlt_cli.main import cli


class StubConnection:
    def __init__(self, condition: str) -> None:
        self.kube_context = KubeContext(namespace="demo")
        conditions = [{"type": condition, "status": "True", "observedGeneration": 1}]
        self.job: dict[str, Any] = {"metadata": {"generation": 1}, "status": {"conditions": conditions}}
        self.patches: list[tuple[dict[str, Any], str]] = []

    async def get_job(self, name: str) -> dict[str, Any]:
        return self.job

    async def patch_job(self, name: str, patch: dict[str, Any], *, field_manager: str) -> dict[str, Any]:
        self.patches.append((patch, field_manager))
        return self.job


def cancel(connection: StubConnection, monkeypatch: pytest.MonkeyPatch) -> Result:
    @asynccontextmanager
    async def connect(kube_context: KubeContext) -> AsyncIterator[StubConnection]:
        yield connection

    monkeypatch.setattr("rlt_cli.commands.cancel.connect", connect)
    return CliRunner().invoke(cli, ["cancel", "sum", "-n", "demo"])


def test_cancel_sets_the_annotation_and_leaves_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = StubConnection("Running")
    done = cancel(connection, monkeypatch)
    assert (done.exit_code, done.stdout) == (0, "sum cancelled\n")
    assert done.stderr == "next: rlt status sum -n demo\n"
    assert connection.patches == [({"metadata": {"annotations": {"rlt.dev/cancel": "true"}}}, "rlt-cancel")]


@pytest.mark.parametrize("final", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_cannot_be_cancelled(final: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = StubConnection(final)
    done = cancel(connection, monkeypatch)
    assert done.exit_code == 1
    assert done.stderr == f"error: Job sum has already ended: {final}.\nnext: rlt delete sum -n demo\n"
    assert connection.patches == []


def test_cancel_releases_a_kept_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = StubConnection("Failed")
    connection.job["status"]["conditions"].append({"type": "ClusterReady", "status": "True", "reason": "Kept"})
    assert cancel(connection, monkeypatch).exit_code == 0
    assert len(connection.patches) == 1
