"""rlt preflight: the job that it submits, and its end, with a stub of the connection to the cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt_api.crd import MAX_NAME_LENGTH
from rlt_api.validation import validate_manifest
from rlt_cli.commands.preflight import build_preflight_job
from rlt_cli.kube_context import KubeContext
from rlt_cli.main import cli

ARITHMETIC = Path(__file__).parents[2] / "examples/01-arithmetic-grpo.yaml"


def example(**spec: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = next(
        each for each in yaml.safe_load_all(ARITHMETIC.read_text()) if each["kind"] == "RLTrainingJob"
    )
    return {**manifest, "spec": {**manifest["spec"], **spec}}


LEVELS = [
    ({}, None, "basic"),
    ({"level": "full", "minBusBandwidth": 1.5}, None, "full"),
    ({"level": "off"}, None, "basic"),
    ({"level": "full"}, "basic", "basic"),
    ({"enabled": True}, "full", "full"),
]


@pytest.mark.parametrize(("preflight", "option", "level"), LEVELS)
def test_the_job_ends_after_the_checks(preflight: dict[str, Any], option: str | None, level: str) -> None:
    job = build_preflight_job(example(preflight=preflight, suspend=True, failurePolicy={"maxRestarts": 3}), option)
    assert list(validate_manifest(job, {})) == []
    assert job["spec"]["preflight"] == {**preflight, "only": True, "level": level}
    assert (job["spec"]["suspend"], job["spec"]["failurePolicy"]["maxRestarts"]) == (False, 0)
    assert job["spec"]["cluster"] == example()["spec"]["cluster"]


def test_a_long_name_is_cut_to_the_maximum() -> None:
    manifest = example()
    long = build_preflight_job({**manifest, "metadata": {"name": "a" * MAX_NAME_LENGTH}}, None)
    assert len(long["metadata"]["name"]) == MAX_NAME_LENGTH
    assert list(validate_manifest(long, {})) == []
    assert build_preflight_job({**manifest, "metadata": {"name": "sum"}}, None)["metadata"]["name"] == "sum-preflight"


def test_two_jobs_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump_all([example(), {**example(), "metadata": {"name": "other"}}]))
    done = CliRunner().invoke(cli, ["preflight", str(file)])
    assert done.exit_code == 1
    assert "2 RLTrainingJobs, and the checks need one." in done.stderr


CHECK = {"name": "dns", "result": "failed", "message": "b cannot resolve sum-head-svc.", "remedy": "Inspect CoreDNS."}


class StubConnection:
    """A cluster in which the job ends with a condition, or is never reconciled."""

    namespace = "demo"

    def __init__(self, condition: str | None) -> None:
        self.condition = condition
        self.applied: list[dict[str, Any]] = []
        self.deleted: list[tuple[str, str]] = []
        self.api = self

    async def apply(self, manifest: dict[str, Any], *, force: bool) -> dict[str, Any]:
        self.applied.append(manifest)
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "1"}}

    async def watch_job(self, name: str) -> AsyncIterator[dict[str, Any]]:
        final = {"type": self.condition, "status": "True", "observedGeneration": 1, "message": "m", "reason": "R"}
        status = {"conditions": [final] if self.condition else [], "preflight": [CHECK]}
        yield {"metadata": {"name": name, "generation": 1}, "status": status}

    async def delete(self, path: str, *, uid: str) -> None:
        self.deleted.append((path, uid))


def run_preflight(connection: StubConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *options: str) -> Result:
    @asynccontextmanager
    async def connect(kube_context: KubeContext) -> AsyncIterator[StubConnection]:
        yield connection

    for module in ("preflight", "wait"):
        monkeypatch.setattr(f"rlt_cli.commands.{module}.connect", connect)
    (tmp_path / "job.yaml").write_text(json.dumps(example()))
    return CliRunner().invoke(cli, ["preflight", str(tmp_path / "job.yaml"), "-n", "demo", *options])


@pytest.mark.parametrize(("condition", "code"), [("Succeeded", 0), ("Failed", 1), (None, 1)])
def test_the_checks_are_printed_and_the_job_is_deleted(
    condition: str | None, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also a job that somebody deletes meanwhile, whose watch ends."""
    connection = StubConnection(condition)
    done = run_preflight(connection, monkeypatch, tmp_path)
    (applied,) = connection.applied
    name = applied["metadata"]["name"]
    assert (done.exit_code, applied["metadata"]["namespace"]) == (code, "demo")
    assert name.endswith("-preflight")
    assert connection.deleted == [(f"/apis/rlt.dev/v1alpha1/namespaces/demo/rltrainingjobs/{name}", "1")]
    assert ("✗ dns" in done.stdout) == (condition is not None)


def test_json_has_the_checks_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = run_preflight(StubConnection("Failed"), monkeypatch, tmp_path, "-o", "json")
    assert json.loads(done.stdout) == [CHECK]
