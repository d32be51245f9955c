"""The steps that download model and data of the hub: which jobs get them."""

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
    data = more.pop("data", {"preset": "gsm8k", "path": "/mnt/rlt/gsm8k"})
    spec = {"model": model, "data": data, "training": training, "cluster": cluster, "storage": storage}
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


GSM8K = ["download", "--dataset", "openai/gsm8k:main"]
OWN_DATA = {"name": "own", "command": ["python3", "/etc/rlt/rlt_pod.pyz", "download", "--dataset", "org/other"]}


@pytest.mark.parametrize(
    ("data", "more", "expected"),
    [
        ({"preset": "gsm8k"}, {}, GSM8K),
        ({"preset": "gsm8k"}, {"evaluation": [{"name": "a", "every": 1}]}, GSM8K),
        ({"hub": {"name": "org/a", "revision": "v2", "config": "b"}}, {}, ["download", "--dataset", "org/a@v2:b"]),
        (
            {"files": ["/mnt/rlt/a.jsonl"]},
            {"evaluation": [{"name": name, "every": 1, "data": {"hub": {"name": "org/a"}}} for name in ("a", "b")]},
            ["download", "--dataset", "org/a"],
        ),
    ],
)
def test_a_job_with_a_volume_downloads_its_data_once(
    data: dict[str, Any], more: dict[str, Any], expected: list[str]
) -> None:
    local = {"path": "/mnt/rlt/model"}
    assert list_steps(local, VOLUME, data=data, **more) == [("download-data", expected)]
    assert [name for name, _ in list_steps(HUB, VOLUME, data=data, **more)] == ["download-model", "download-data"]


@pytest.mark.parametrize(
    ("data", "more"),
    [
        ({"preset": "arithmetic"}, {}),
        ({"preset": "gsm8k", "path": "/mnt/rlt/gsm8k"}, {}),
        ({"preset": "gsm8k"}, {"cluster": {"env": [{"name": "HF_DATASETS_OFFLINE", "value": "1"}]}}),
    ],
)
def test_other_data_are_not_downloaded(data: dict[str, Any], more: dict[str, Any]) -> None:
    assert list_steps({"path": "/mnt/rlt/model"}, VOLUME, data=data, **more) == []


def test_a_jobs_own_download_of_data_replaces_the_operators() -> None:
    steps = list_steps(HUB, VOLUME, data={"preset": "gsm8k"}, framework={"prepare": [OWN_DATA]})
    assert [name for name, _ in steps] == ["download-model", "own"]


def test_a_resolved_spec_has_at_most_the_maximum_of_steps() -> None:
    own = [{"name": f"step-{index}", "command": ["a"]} for index in range(15)]
    steps = list_steps(HUB, VOLUME, data={"preset": "gsm8k"}, framework={"prepare": own})
    assert [name for name, _ in steps[:2]] == ["download-model", "step-0"]
    assert len(steps) == 16
