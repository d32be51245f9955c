"""rlt export: its errors, and what it prints, with a stub of the connection to the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import observed as o
import pytest
import yaml
from click.testing import CliRunner, Result
from job_specs import COMMAND, merged
from openrlhf_jobs import OPENRLHF
from roll_jobs import ROLL

from rlt.errors import UnavailableError
from rlt.exports import build_export_manifest, build_publish_manifest
from rlt.kube_context import KubeContext
from rlt_cli.main import cli
from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError

KEPT = merged(o.SPEC, {"storage": {"claimName": "runs"}})
IN_BUCKET = merged(o.SPEC, {"storage": {"bucket": "s3://runs/x"}})
RUN = "/mnt/rlt/runs/sum-11111111"
ROTATED = merged(KEPT, {"checkpoint": {"saveFreq": 5, "maxToKeep": 2}})
EXPORTED = {"checkpoint": {"path": "s3://runs/x/a/checkpoints", "exportedPath": "s3://runs/x/a/export/2"}}
SAVED = {"checkpoint": {"latestStep": 20, "path": f"{RUN}/checkpoints"}}


def job(spec: Any = KEPT, status: Any = SAVED) -> Manifest:
    return {**o.manifest(spec), "status": status}


@pytest.mark.parametrize(
    ("manifest", "step", "message", "command"),
    [
        (job(o.SPEC), None, "spec.storage has neither claimName nor storageClassName", "rlt status sum"),
        (
            job(IN_BUCKET),
            None,
            "The model at the end .* will be in status.checkpoint.exportedPath",
            "status sum",
        ),
        (job(IN_BUCKET, EXPORTED), None, "The model at the end .* is in s3://runs/x/a/export/2", "status sum"),
        (job(status={}), None, "status.checkpoint.latestStep is absent, and spec.checkpoint.saveFreq is -1", "status"),
        (job(), 30, "--step 30: job sum has checkpoints up to step 20", "rlt export sum --step 20"),
        (job(ROTATED), 10, "maxToKeep is 2, and job sum has saved step 20: step 10 has been deleted", "--step 20"),
        (job(merged(OPENRLHF, {})), None, f"framework.type openrlhf writes .*: use {RUN}/model", "rlt status sum"),
        (job(merged(ROLL, {})), 20, rf"use {RUN}/checkpoints/\*/checkpoint-19 in the volume", "rlt status sum"),
        (job(merged(COMMAND, {"storage": KEPT["storage"]})), None, "framework.type command: .* is unknown", "status"),
        (job(merged(KEPT, {"training.totalSteps": 0})), None, "The spec of job sum is invalid", "rlt status sum"),
    ],
    ids=[
        "no-volume",
        "bucket",
        "bucket-at-the-end",
        "no-checkpoint",
        "later-step",
        "deleted",
        "openrlhf",
        "roll-fsdp2",
        "command",
        "invalid",
    ],
)
def test_a_checkpoint_that_cannot_be_exported(manifest: Manifest, step: int | None, message: str, command: str) -> None:
    with pytest.raises(UnavailableError, match=message) as error:
        build_export_manifest(manifest, step, KubeContext())
    assert command in error.value.next


@pytest.mark.parametrize(
    ("checkpoint", "step"),
    [
        ({}, 15),
        ({"saveFreq": 7}, 14),
        ({"saveFreq": 7, "maxToKeep": 1}, 20),
        ({"maxToKeep": 0}, 5),
        ({"keepBest": True}, 5),
    ],
    ids=["kept", "between", "last", "all", "best"],
)
def test_a_checkpoint_that_may_exist_is_exported(checkpoint: dict[str, Any], step: int) -> None:
    spec = merged(ROTATED, {f"checkpoint.{name}": value for name, value in checkpoint.items()})
    assert build_export_manifest(job(spec), step, KubeContext())["kind"] == "Job"


class StubApi:
    def __init__(self, stored: Manifest, *, exists: bool = False) -> None:
        self.stored = stored
        self.exists = exists
        self.created: list[tuple[str, Manifest]] = []

    async def get(self, path: str) -> Manifest:
        assert path.endswith("/namespaces/demo/rltrainingjobs/sum")
        return self.stored

    async def create(self, path: str, manifest: Manifest) -> Manifest:
        if self.exists:
            raise ApiError(409, "exists")
        self.created.append((path, manifest))
        return manifest


def export(api: StubApi, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[Result, list[str]]:
    """Run `rlt export sum`. Return the result and the notes."""
    notes: list[str] = []

    @asynccontextmanager
    async def connect(kube_context: KubeContext) -> AsyncIterator[Any]:
        yield SimpleNamespace(api=api, namespace="demo", kube_context=kube_context, notify=notes.append)

    monkeypatch.setattr("rlt_cli.commands.export.connect", connect)
    return CliRunner().invoke(cli, ["export", "sum", "-n", "demo", *arguments]), notes


def test_the_job_is_created_and_its_folder_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    api = StubApi(job())
    done, notes = export(api, monkeypatch, "--step", "10")
    assert (done.exit_code, done.stdout) == (0, f"sum-export-10 created: {RUN}/exports/step-10\n")
    assert done.stderr == "next: kubectl logs -f job/sum-export-10 -n demo\n"
    ((path, created),) = api.created
    assert path == "/apis/batch/v1/namespaces/demo/jobs"
    assert created["metadata"]["name"] == "sum-export-10"
    assert notes == []


def test_a_dry_run_prints_the_manifest_of_the_latest_step_with_masked_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "hf_" + "a1B2" * 8
    api = StubApi(job(merged(KEPT, {"cluster.env": [{"name": "HF_TOKEN", "value": secret}]})))
    done, _ = export(api, monkeypatch, "--dry-run")
    assert (done.exit_code, api.created) == (0, [])
    assert yaml.safe_load(done.stdout)["metadata"]["name"] == "sum-export-20"
    assert secret not in done.stdout
    export(api, monkeypatch)
    assert secret in str(api.created), "the pod needs its value"


def test_a_running_job_is_exported_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    condition = {"type": "Running", "status": "True", "observedGeneration": 1, "reason": "Training", "message": ""}
    running = {**SAVED, "conditions": [{**condition, "lastTransitionTime": "2026-01-02T03:04:05Z"}]}
    done, notes = export(StubApi(job(status=running)), monkeypatch)
    assert done.exit_code == 0
    assert notes == ["note: job sum runs: it may delete the checkpoint during the export (spec.checkpoint)."]


def test_an_export_that_exists_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = export(StubApi(job(), exists=True), monkeypatch)
    assert done.exit_code == 1
    assert "Job sum-export-20 exists" in done.stderr
    assert done.stderr.endswith("next: kubectl delete job sum-export-20 -n demo\n")


PUBLISHED = merged(KEPT, {"publish": [{"hub": "lab/a", "secretName": "hub"}, {"bucket": "s3://models/a"}]})
ENDED = {"checkpoint": {**SAVED["checkpoint"], "exportedPath": f"{RUN}/export"}}


def test_a_failed_publication_is_repeated_with_the_keys_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    api = StubApi(job(PUBLISHED, ENDED))
    done, _ = export(api, monkeypatch, "--publish")
    assert (done.exit_code, done.stdout) == (0, f"sum-publish created: {RUN}/export\n")
    ((_, created),) = api.created
    (container,) = created["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["rlt-trainer", "publish", RUN]
    token = {"name": "RLT_PUBLISH_0_HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "HF_TOKEN"}}}
    assert token in container["env"]
    assert created["metadata"]["ownerReferences"][0]["name"] == "sum"


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (job(KEPT, ENDED), "spec.publish is empty"),
        (job(PUBLISHED), "status.checkpoint.exportedPath is absent"),
        (job(merged(PUBLISHED, {"storage": None}), ENDED), "upload it, such as with `hf upload`"),
        (job(merged(PUBLISHED, {"training.totalSteps": 0}), ENDED), "The spec of job sum is invalid"),
    ],
    ids=["no-place", "no-export", "no-volume", "invalid"],
)
def test_a_model_that_cannot_be_published(manifest: Manifest, message: str) -> None:
    with pytest.raises(UnavailableError, match=message):
        build_publish_manifest(manifest, KubeContext())


def test_a_publication_has_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = export(StubApi(job()), monkeypatch, "--publish", "--step", "10")
    assert done.exit_code == 2
    assert "use it without --step" in done.stderr
