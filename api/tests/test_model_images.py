"""Models in images: the folders that the rest of the operator reads, and the images that the pods mount."""

from __future__ import annotations

import pytest
from job_specs import BUILTIN, VERL, Json, gpus, hub_model, merged

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.model_images import is_image_url, list_images
from rlt_api.validation.resolved_spec import build_resolved_spec, read_resolved_spec
from rlt_api.validation.validate import validate_job

IMAGE = "registry.example.com:5000/models/tiny:v1"
MODEL = hub_model(f"oci://{IMAGE}")


def resolve(*changes: Json, job: Json = BUILTIN) -> RLTrainingJobSpec:
    """The resolved spec of a valid job."""
    spec = merged(job, {name: value for change in changes for name, value in change.items()})
    assert not validate_job("x", spec).findings
    resolved = read_resolved_spec(build_resolved_spec(spec, None), spec).spec
    assert resolved is not None
    return resolved


def test_a_model_is_the_folder_of_a_mount() -> None:
    for job in (BUILTIN, merged(VERL, gpus())):
        spec = resolve(MODEL, job=job)
        assert spec.model
        assert spec.model.path == "/mnt/model-images/registry.example.com+5000/models/tiny+v1"
        assert list_images(spec) == [IMAGE]
        assert not spec.framework.prepare, "nothing is downloaded"


def test_each_image_is_mounted_once() -> None:
    digest = f"registry.example.com/judge@sha256:{'0' * 64}"
    spec = resolve(MODEL, {"rewards": [{"model": f"oci://{digest}"}, {"model": f"oci://{IMAGE}"}]})
    assert spec.rewards[0].model == f"/mnt/model-images/{digest.replace(':', '+')}"
    assert list_images(spec) == [IMAGE, digest]


def test_other_folders_are_not_mounted() -> None:
    for path in ("/mnt/model-images", "/mnt/model-images/no host", "/models/oci"):
        assert list_images(resolve(hub_model(path))) == []


@pytest.mark.parametrize(
    ("path", "is_image"),
    [
        (f"oci://{IMAGE}", True),
        ("oci://registry.example.com/qwen", True),
        (f"oci://registry.example.com/qwen:v1@sha256:{'a' * 64}", True),
        ("oci://qwen:v1", False),
        ("oci://registry.example.com/Qwen", False),
        ("oci://registry.example.com/qwen@sha256:12", False),
        ("oci://registry.example.com/qwen:v1\n", False),
        ("registry.example.com/qwen:v1", False),
    ],
)
def test_an_image_has_a_host_a_name_and_a_tag_or_digest(path: str, is_image: bool) -> None:
    assert is_image_url(path) == is_image
