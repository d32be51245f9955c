"""Rules over several fields: each finding names field, value and remedy."""

from __future__ import annotations

from typing import Any

import observed as o
import pytest

from rlt_api.rules import findings, ranks
from rlt_api.spec import RLTrainingJobSpec

WORKERS = o.SPEC["cluster"]["workers"][0]


def with_worker(**changes: Any) -> dict[str, Any]:
    return {**o.SPEC, "cluster": {"image": "i", "workers": [{**WORKERS, **changes}]}}


def with_training(**changes: Any) -> dict[str, Any]:
    return {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 32, **changes}}


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"cluster": o.SPEC["cluster"]}, "spec.model", "none"),
    ({**o.SPEC, "framework": {"type": "command"}}, "spec.framework.command", "none"),
    ({**o.COMMAND_SPEC, "model": {"fromSeed": {}}}, "spec.model", "given"),
    ({**o.SPEC, "framework": {"command": ["x"]}}, "spec.framework.command", "given"),
    ({**o.SPEC, "model": {}}, "spec.model", "none"),
    ({**o.SPEC, "model": {"path": "m", "fromSeed": {}}}, "spec.model", "both"),
    ({**o.SPEC, "model": {"fromSeed": {"hiddenSize": 130}}}, "spec.model.fromSeed.hiddenSize", "130"),
    ({**o.SPEC, "model": {"fromSeed": {"numKeyValueHeads": 3}}}, "spec.model.fromSeed.numKeyValueHeads", "3"),
    ({**o.SPEC, "data": {"preset": "gsm8k"}}, "spec.data.path", "none"),
    ({**o.SPEC, "data": {"preset": "arithmetic", "path": "/d"}}, "spec.data.path", "/d"),
    (with_training(ppoMiniBatchSize=12), "spec.training.ppoMiniBatchSize", "12"),
    (with_training(trainBatchSize=31), "spec.training.trainBatchSize", "31"),
    (with_training(ppoMiniBatchSize=1), "spec.training.ppoMiniBatchSize", "1"),
    (
        with_worker(accelerator={"resourceName": "nvidia.com/gpu", "count": 5}),
        "spec.training.trainBatchSize",
        "32",
    ),
    (
        with_worker(resources={"cpu": "1", "memory": "1Gi", "sharedMemory": "1024Mi"}),
        "spec.cluster.workers[0].resources.sharedMemory",
        "1024Mi",
    ),
    (with_worker(resources={"cpu": "0", "memory": "1Gi"}), "spec.cluster.workers[0].resources.cpu", "0"),
    ({**o.SPEC, "checkpoint": {"saveFreq": 5}}, "spec.storage", "none"),
    ({**o.SPEC, "storage": {"claimName": "c", "mountPath": "/etc"}}, "spec.storage.mountPath", "/etc"),
    ({**o.SPEC, "storage": {"claimName": "c", "mountPath": "/dev/shm"}}, "spec.storage.mountPath", "/dev/shm"),
]


@pytest.mark.parametrize(("spec", "field", "value"), CASES)
def test_a_contradiction_is_found(spec: dict[str, Any], field: str, value: str) -> None:
    found = findings("sum", RLTrainingJobSpec.model_validate(spec))
    assert (field, value) in [(finding.field, finding.value) for finding in found]
    assert all(finding.fix and str(finding).startswith(finding.field) for finding in found)


@pytest.mark.parametrize(
    "spec", [o.SPEC, o.COMMAND_SPEC, {**o.SPEC, "storage": {"claimName": "c", "mountPath": "/data"}}]
)
def test_good_specs_have_no_finding(spec: dict[str, Any]) -> None:
    assert findings("sum", RLTrainingJobSpec.model_validate(spec)) == []


@pytest.mark.parametrize("name", ["a" * 41, "1st", "a.b", "-a", "a-"])
def test_names_that_kuberay_cannot_use_are_found(name: str) -> None:
    assert [finding.field for finding in findings(name, RLTrainingJobSpec.model_validate(o.SPEC))] == ["metadata.name"]


def test_ranks_are_accelerators_or_pods() -> None:
    gpus = with_worker(accelerator={"resourceName": "amd.com/gpu", "count": 8})
    assert ranks(RLTrainingJobSpec.model_validate(o.SPEC).cluster.workers[0]) == 2
    assert ranks(RLTrainingJobSpec.model_validate(gpus).cluster.workers[0]) == 16
