"""Models and data in a bucket: the step that downloads them, and the paths that the rest of the operator reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from job_specs import BUILTIN, COMMAND, files, hub_model, merged, suite

from rlt_api.spec.objects import downloads_to_each_pod, is_object_url, list_objects
from rlt_api.validation.resolved_spec import build_resolved_spec, read_resolved_spec
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

MODEL = hub_model("s3://models/team/tiny/")
VOLUME = {"storage.claimName": "rlt-runs", "storage.secretName": "s3"}


def resolve(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved spec of a valid job."""
    spec = merged(BUILTIN, {name: value for change in changes for name, value in change.items()})
    assert not validate_job("x", spec).findings
    return build_resolved_spec(spec, None)


def read_command(resolved: dict[str, Any]) -> list[str]:
    (step,) = resolved["framework"]["prepare"]
    assert step["name"] == "download-objects"
    assert step["command"][:3] == ["python3", "/etc/rlt/rlt_pod.pyz", "download"]
    command: list[str] = step["command"][3:]
    return command


def test_a_model_is_a_folder_on_the_volume() -> None:
    resolved = resolve(MODEL, VOLUME)
    assert resolved["model"]["path"] == "/mnt/rlt/s3/models/team/tiny"
    assert read_command(resolved) == [
        *("--to", "/mnt/rlt/s3"),
        *("--model", "spec.model.path=s3://models/team/tiny/"),
    ]


def test_all_paths_of_models_and_data_are_downloaded() -> None:
    """A path that several fields have is downloaded once."""
    changes = {
        **files("s3://data/a.parquet", "/mnt/rlt/b.jsonl", "s3://data/c.jsonl"),
        **suite(data={"files": ["s3://data/a.parquet"]}),
        "rewards": [{"model": "s3://models/judge"}],
    }
    resolved = resolve(MODEL, changes, VOLUME)
    assert resolved["data"]["files"] == ["/mnt/rlt/s3/data/a.parquet", "/mnt/rlt/b.jsonl", "/mnt/rlt/s3/data/c.jsonl"]
    assert resolved["evaluation"][0]["data"]["files"] == ["/mnt/rlt/s3/data/a.parquet"]
    assert resolved["rewards"][0]["model"] == "/mnt/rlt/s3/models/judge"
    assert read_command(resolved)[2:] == [
        *("--model", "spec.model.path=s3://models/team/tiny/"),
        *("--model", "spec.rewards[0].model=s3://models/judge"),
        *("--data", "spec.data.files[0]=s3://data/a.parquet"),
        *("--data", "spec.data.files[2]=s3://data/c.jsonl"),
    ]


def test_a_checkpoint_is_downloaded() -> None:
    """Its folder on the disk of each pod is below storage.mountPath, where a job with a bucket cannot have another."""
    url = "s3://runs/a/runs/x-1/checkpoints/step-5"
    changes = {"checkpoint": {"resume": "path", "resumeFromPath": url}, "storage.bucket": "s3://runs/a"}
    resolved = resolve(changes)
    assert resolved["checkpoint"]["resumeFromPath"] == "/mnt/rlt/s3/runs/a/runs/x-1/checkpoints/step-5"
    assert read_command(resolved)[-2:] == ["--checkpoint", f"spec.checkpoint.resumeFromPath={url}"]
    spec = read_resolved_spec(resolved, {}).spec
    assert spec
    assert downloads_to_each_pod(spec)


@pytest.mark.parametrize(
    ("storage", "root", "options"),
    [
        ({}, "/mnt/rlt/s3", ["--nodes=3"]),
        ({"storage.bucket": "s3://runs/a", "storage.endpoint": "http://m:9"}, "/mnt/rlt/s3", ["--nodes=3"]),
        ({"storage.modelCache": {"claimName": "m"}, "storage.bucket": "s3://runs/a"}, "/mnt/models/s3", []),
        ({**VOLUME, "storage.modelCache": {"claimName": "m", "readOnly": True}}, "/mnt/rlt/s3", []),
    ],
)
def test_the_folder_is_on_a_volume_or_on_each_pod(storage: dict[str, Any], root: str, options: list[str]) -> None:
    resolved = resolve(MODEL, storage)
    endpoint = ["--endpoint", storage["storage.endpoint"]] if "storage.endpoint" in storage else []
    assert read_command(resolved)[:-2] == ["--to", root, *endpoint, *options]
    spec = read_resolved_spec(resolved, {}).spec
    assert spec
    assert downloads_to_each_pod(spec) == bool(options)


def test_a_job_of_checks_alone_keeps_the_paths() -> None:
    resolved = resolve(MODEL, VOLUME, {"preflight": {"level": "basic", "only": True}})
    assert resolved["framework"]["prepare"] == []
    assert resolved["model"]["path"] == "s3://models/team/tiny/"


def test_other_text_stays() -> None:
    """Options and prompts may contain URLs."""
    spec = merged(BUILTIN, {"cluster.env": [{"name": "PATH_OF_LOGS", "value": "s3://logs/x"}]})
    resolved = build_resolved_spec(spec, None)
    assert resolved["cluster"]["env"][0]["value"] == "s3://logs/x"
    assert resolved["framework"]["prepare"] == []


def test_endpoint_and_secret_need_no_bucket_of_the_run() -> None:
    storage = {**VOLUME, "storage.endpoint": "https://minio:9000"}
    validated = validate_job("x", merged(BUILTIN, {**MODEL, **storage}))
    assert not validated.findings
    assert validated.spec
    assert not [each for each in find_warnings(validated.spec) if "s3" in each]


def test_a_command_has_no_paths_to_download() -> None:
    spec = validate_job("x", COMMAND).spec
    assert spec
    assert list_objects(spec) == []


@pytest.mark.parametrize(
    ("url", "valid"),
    [
        ("s3://models/Qwen3-8B", True),
        ("s3://models/a/b=1/c+d@2/", True),
        ("s3://models", False),
        ("s3://models/", False),
        ("s3://models//a", False),
        ("s3://models/a/../b", False),
        ("s3://models/.", False),
        ("s3://models/a b", False),
        ("s3://Models/a", False),
        ("s3://models/a\n", False),
    ],
)
def test_the_form_of_a_url(url: str, valid: bool) -> None:
    assert is_object_url(url) == valid
