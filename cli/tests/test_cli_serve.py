"""rlt serve: the model that its manifests serve, and its errors, with a stub of the connection to the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import observed as o
import pytest
import yaml
from click.testing import CliRunner, Result
from job_specs import gpus, merged

from rlt.errors import UnavailableError
from rlt.kube_context import KubeContext
from rlt.serving import build_server_manifests
from rlt_cli.main import cli
from rlt_core.children.pod_template import NO_FABRIC
from rlt_core.job import Manifest

EXPORT = "/mnt/rlt/runs/sum-11111111/export"
SPEC = merged(o.SPEC, {"storage": {"claimName": "runs"}})
EXPORTED = {"checkpoint": {"latestStep": 20, "path": "/mnt/rlt/x", "exportedPath": EXPORT}}
REJECTED = {
    **{"type": "Promoted", "status": "False", "reason": "GateFailed", "message": "math: mean 0.1"},
    **{"lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1},
}
BUCKET = merged(SPEC, {"storage": {"claimName": None, "bucket": "s3://runs/a"}})
PUBLISHED = {
    "checkpoint": {"latestStep": 20, "path": "s3://runs/a/x", "exportedPath": "s3://runs/a/x/export"},
    "published": [{"url": "s3://models/a", "revision": "1"}, {"url": "https://huggingface.co/lab/a", "revision": "2"}],
}
PLACES = [{"bucket": "s3://models/a"}, {"hub": "lab/a", "secretName": "hub"}]


def job(spec: Any = SPEC, status: Any = EXPORTED) -> Manifest:
    return {**o.manifest(spec), "status": {"network": NO_FABRIC.to_json(), **status}}


def build(source: Manifest, *, adapter: bool = False, unpromoted: bool = False) -> list[str]:
    """The command line of the server."""
    deployment, _ = build_server_manifests(source, KubeContext(), adapter=adapter, image=None, unpromoted=unpromoted)
    command: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    return command


def test_the_export_on_the_volume_is_served() -> None:
    assert build(job())[3:5] == ["--model", EXPORT]
    assert build(job(merged(SPEC, gpus(8))))[:3] == ["vllm", "serve", EXPORT]


def test_a_model_without_a_volume_is_served_from_the_hub() -> None:
    command = build(job(merged(BUCKET, {"publish": PLACES}), PUBLISHED))
    assert command[4] == "lab/a"
    assert command[command.index("--revision") + 1] == "2"


def test_a_model_in_a_registry_is_mounted_as_an_image() -> None:
    place = {"registry": "oci://ghcr.io/lab/a:v1", "secretName": "registry"}
    published = {**PUBLISHED, "published": [{"url": place["registry"], "revision": "sha256:1"}]}
    source = job(merged(BUCKET, {"publish": [place], "cluster.imagePullSecrets": ["registry", "mine"]}), published)
    deployment, _ = build_server_manifests(source, KubeContext(), adapter=False, image=None, unpromoted=False)
    pod = deployment["spec"]["template"]["spec"]
    assert {each["name"]: each for each in pod["volumes"]}["model"]["image"]["reference"] == "ghcr.io/lab/a:v1@sha256:1"
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "model"]
    assert mount == {"name": "model", "mountPath": pod["containers"][0]["command"][4], "readOnly": True}
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mine"}]
    assert "HF_TOKEN" not in [each["name"] for each in pod["containers"][0]["env"]]


def test_an_adapter_is_served_on_its_base_model() -> None:
    spec = merged(SPEC, {"model": {"path": "Qwen/Qwen2.5-0.5B", "fromSeed": None, "lora": {"rank": 8}}})
    command = build(job(spec), adapter=True)
    assert command[4] == "Qwen/Qwen2.5-0.5B"
    assert f"sum={EXPORT}/adapter" in command


@pytest.mark.parametrize(
    ("manifest", "adapter", "message"),
    [
        (job(status={}), False, "Job sum has exported no model: status.checkpoint.exportedPath is absent"),
        (job(BUCKET, PUBLISHED), False, "is in s3://runs/a/x/export, which no server can mount: copy it to a volume"),
        (
            job(merged(SPEC, {"storage": None})),
            False,
            "train with storage.claimName, or with hub or registry in spec.publish",
        ),
        (job(status={**EXPORTED, "conditions": [REJECTED]}), False, "Job sum is not promoted: math: mean 0.1"),
        (job(), True, "Job sum has trained no adapter: spec.model.lora is not given"),
        (job(merged(SPEC, {"model": {"lora": {"rank": 8}}})), True, "The base model of job sum has no files"),
        (job(merged(SPEC, {"training.totalSteps": 0})), False, "The spec of job sum is invalid"),
        (
            job(merged(SPEC, {**gpus(8, 2), "rollout.tensorParallelSize": 16})),
            False,
            "tensorParallelSize 16: an engine of job sum spans pods of 8 devices",
        ),
    ],
    ids=["no-export", "bucket", "pods", "gate", "no-lora", "seed", "invalid", "two-pods"],
)
def test_models_that_cannot_be_served(manifest: Manifest, message: str, *, adapter: bool) -> None:
    with pytest.raises(UnavailableError, match=message):
        build(manifest, adapter=adapter)


def serve(monkeypatch: pytest.MonkeyPatch, *arguments: str, status: Any = EXPORTED) -> Result:
    """Run `rlt serve sum`."""

    class StubConnection(SimpleNamespace):
        async def get_job(self, name: str) -> Manifest:
            assert name == "sum"
            return job(status=status)

    @asynccontextmanager
    async def connect(kube_context: KubeContext) -> AsyncIterator[Any]:
        yield StubConnection(kube_context=kube_context)

    monkeypatch.setattr("rlt_cli.commands.serve.connect", connect)
    return CliRunner().invoke(cli, ["serve", "sum", "-n", "demo", *arguments])


def test_the_manifests_are_printed_for_kubectl(monkeypatch: pytest.MonkeyPatch) -> None:
    done = serve(monkeypatch, "--render", "--image", "vllm/vllm-openai:v0.32.0")
    assert done.exit_code == 0
    deployment, service = yaml.safe_load_all(done.stdout)
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "vllm/vllm-openai:v0.32.0"


def test_without_render_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    done = serve(monkeypatch)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Missing option '--render'" in done.stderr


def test_a_model_that_is_not_promoted_needs_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {**EXPORTED, "conditions": [REJECTED]}
    done = serve(monkeypatch, "--render", status=status)
    assert done.exit_code == 1
    assert done.stderr.endswith("next: rlt serve sum --render --unpromoted -n demo\n")
    assert serve(monkeypatch, "--render", "--unpromoted", status=status).exit_code == 0
