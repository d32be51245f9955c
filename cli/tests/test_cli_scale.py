"""rlt scale, with a stub of the connection to the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result
from job_specs import BUILTIN, elastic, merged

from rlt.kube_context import KubeContext
from rlt_api.validation.resolved_spec import build_resolved_spec, dump_resolved_spec
from rlt_cli.main import cli

SPEC = merged(BUILTIN, elastic())


class StubConnection:
    def __init__(self, *, accepted: bool = True, condition: str = "Running") -> None:
        self.kube_context = KubeContext(namespace="demo")
        metadata = {"name": "sum", "namespace": "demo", "uid": "1", "generation": 1, "resourceVersion": "1"}
        time = "2026-01-02T03:04:05Z"
        found = {"type": condition, "status": "True", "observedGeneration": 1, "reason": "A", "message": ""}
        status: dict[str, Any] = {"conditions": [{**found, "lastTransitionTime": time}]}
        if accepted:
            status["resolvedSpec"] = dump_resolved_spec(build_resolved_spec(SPEC, None))
        self.job: dict[str, Any] = {"metadata": metadata, "spec": SPEC, "status": status}
        self.patches: list[tuple[dict[str, Any], str]] = []

    async def get_job(self, name: str) -> dict[str, Any]:
        return self.job

    async def patch_job(self, name: str, patch: dict[str, Any], *, field_manager: str) -> dict[str, Any]:
        self.patches.append((patch, field_manager))
        return self.job


def scale(connection: StubConnection, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    @asynccontextmanager
    async def connect(kube_context: KubeContext) -> AsyncIterator[StubConnection]:
        yield connection

    monkeypatch.setattr("rlt_cli.commands.scale.connect", connect)
    return CliRunner().invoke(cli, ["scale", "sum", *arguments, "-n", "demo"])


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("group", [[], ["--group", "rollout"]])
def test_scale_sets_the_number(accepted: bool, group: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    connection = StubConnection(accepted=accepted)
    done = scale(connection, monkeypatch, "6", *group)
    assert (done.exit_code, done.stdout) == (0, "sum scaled to 6 rollout pods\n"), done.stderr
    assert done.stderr == "next: rlt status sum -n demo\n"
    assert connection.patches == [({"spec": {"rolloutReplicas": 6}}, "rlt-scale")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["9"], "error: sum: spec.rolloutReplicas: 9: is above maxReplicas 8; use 8 or less\n"),
        (["1"], "error: sum: spec.rolloutReplicas: 1: is below minReplicas 2; use 2 or more\n"),
        (["6", "--group", "workers"], "--group workers: its number of pods cannot change; use --group rollout"),
        (["0"], "0 is not in the range x>=1"),
    ],
)
def test_a_number_that_the_job_does_not_allow(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = StubConnection()
    done = scale(connection, monkeypatch, *arguments)
    assert done.exit_code
    assert message in done.stderr
    assert connection.patches == []


@pytest.mark.parametrize("final", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_cannot_be_scaled(final: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = StubConnection(condition=final)
    done = scale(connection, monkeypatch, "6")
    assert done.exit_code == 1
    assert done.stderr == f"error: Job sum has already ended: {final}.\nnext: rlt status sum -n demo\n"
    assert connection.patches == []
