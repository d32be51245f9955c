"""What a job keeps on its volume, and the note for a volume that is too small."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_api.rules.volume_size import checkpoint_bytes, list_volume_parts
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.warnings import find_warnings

PARAMETERS = 7e9
GIVEN = {"path": "org/model", "parameters": "7B"}


def spec_of(**blocks: Any) -> RLTrainingJobSpec:
    return RLTrainingJobSpec.model_validate(
        {
            "model": GIVEN,
            "training": {"totalSteps": 100},
            "checkpoint": {"saveFreq": 10, "maxToKeep": 2},
            "storage": {"storageClassName": "nfs", "size": "500Gi"},
            **blocks,
        }
    )


@pytest.mark.parametrize(
    ("blocks", "bytes_of_a_parameter"),
    [
        ({}, [2, 3 * 12, 4]),
        ({"checkpoint": {"saveFreq": -1}}, [2, 4]),
        ({"checkpoint": {"saveFreq": 100, "maxToKeep": 5}}, [2, 12, 4]),
        ({"algorithm": {"advEstimator": "gae", "critic": {}}}, [2, 3 * 24, 4]),
        ({"model": {**GIVEN, "lora": {"rank": 8}}}, [2, 4]),
        ({"storage": {"modelCache": {"claimName": "models"}}}, [3 * 12, 4]),
        ({"storage": {"modelCache": {"claimName": "models"}, "hfHome": "/mnt/rlt/hub"}}, [2, 3 * 12, 4]),
        ({"model": {**GIVEN, "path": "/mnt/rlt/models/a"}}, [2, 3 * 12, 4]),
        ({"model": {**GIVEN, "path": "/mnt/models/a"}}, [3 * 12, 4]),
        ({"model": {"path": "org/model"}}, []),
    ],
)
def test_the_parts_are_multiples_of_the_parameters(blocks: dict[str, Any], bytes_of_a_parameter: list[int]) -> None:
    parts = list_volume_parts(spec_of(**blocks))
    assert [part.bytes for part in parts] == [size * PARAMETERS for size in bytes_of_a_parameter]


def test_the_size_of_a_checkpoint_is_unknown_without_the_size_of_the_model() -> None:
    assert checkpoint_bytes(spec_of()) == 12 * PARAMETERS
    assert checkpoint_bytes(spec_of(model={"path": "org/model"})) is None


def test_a_volume_of_the_job_that_is_too_small_is_noted() -> None:
    storage = {"storageClassName": "nfs", "size": "200Gi"}
    (found,) = (each for each in find_warnings(spec_of(storage=storage)) if "storage.size" in each)
    assert found == (
        "spec.storage.size: 200Gi: does not hold 13 GiB of model files + 235 GiB for 3 checkpoints of 78.2 GiB + "
        "26.1 GiB for the exported model = 273.8 GiB; use 274Gi or more, or a smaller checkpoint.maxToKeep"
    )
    assert not [each for each in find_warnings(spec_of()) if "storage.size" in each]
