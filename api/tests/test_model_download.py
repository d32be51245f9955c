"""The step that downloads a model of the hub: which jobs get it."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_api.validation.resolved_spec import build_resolved_spec

HUB: dict[str, Any] = {"path": "Qwen/Qwen3-8B"}
VOLUME: dict[str, Any] = {"claimName": "rlt-runs"}
OWN_STEP = {"name": "own", "command": ["python3", "/etc/rlt/rlt_pod.pyz", "download", "Qwen/Qwen3-8B"]}


def list_steps(model: dict[str, Any], storage: dict[str, Any], **more: Any) -> list[tuple[str, list[str]]]:
    training = {"totalSteps": 1, "trainBatchSize": 8}
    cluster = {"image": "i", "workers": [{"replicas": 1}], **more.pop("cluster", {})}
    spec = {"model": model, "data": {"preset": "gsm8k"}, "training": training, "cluster": cluster, "storage": storage}
    resolved = build_resolved_spec({**spec, **more}, None)
    return [(step["name"], step["command"][2:]) for step in resolved["framework"]["prepare"]]


@pytest.mark.parametrize(
    ("model", "storage"),
    [
        (HUB, VOLUME),
        (HUB, {"storageClassName": "shared", "size": "100Gi"}),
        (HUB, {"modelCache": {"claimName": "models"}}),
        (HUB, {**VOLUME, "hfHome": "/mnt/rlt/hub"}),
        ({**HUB, "revision": "v2"}, VOLUME),
    ],
)
def test_a_job_with_a_volume_for_the_model_downloads_it(model: dict[str, Any], storage: dict[str, Any]) -> None:
    revision = ["--revision", model["revision"]] if "revision" in model else []
    assert list_steps(model, storage) == [("download-model", ["download", "Qwen/Qwen3-8B", *revision])]


@pytest.mark.parametrize(
    ("model", "storage", "more"),
    [
        ({"path": "/mnt/rlt/models/Qwen3-8B"}, VOLUME, {}),
        ({"fromSeed": {}}, VOLUME, {}),
        (HUB, {}, {}),
        (HUB, {**VOLUME, "modelCache": {"claimName": "models", "readOnly": True}}, {}),
        (HUB, {**VOLUME, "hfHome": "/tmp/hub"}, {}),
        (HUB, VOLUME, {"preflight": {"level": "basic", "only": True}}),
        (HUB, VOLUME, {"cluster": {"env": [{"name": "HF_HUB_OFFLINE", "value": "1"}]}}),
    ],
)
def test_other_jobs_do_not(model: dict[str, Any], storage: dict[str, Any], more: dict[str, Any]) -> None:
    assert list_steps(model, storage, **more) == []


def test_the_download_comes_first_and_only_once() -> None:
    data = {"name": "data", "command": ["a", "b"]}
    assert [name for name, _ in list_steps(HUB, VOLUME, framework={"prepare": [data]})] == ["download-model", "data"]
    assert [name for name, _ in list_steps(HUB, VOLUME, framework={"prepare": [data, OWN_STEP]})] == ["data", "own"]
