"""A job resumes from the latest checkpoint of another job: it waits for its end, fails without one, keeps its path."""

from __future__ import annotations

import copy
import json
from typing import Any

import observed as o
import pytest
from reconcile_loop import CONFIG_MAP, KEY, PATH, RAY_CLUSTER, FakeApi, Loop
from verl_jobs import VERL

from rlt_api.schema.crd import KIND
from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_api.validation.resolved_spec import load_resolved_spec
from rlt_core.job import Manifest
from rlt_operator.conditions import find_condition
from rlt_operator.lifecycle.admission import JOB_INTERVAL_S

STORAGE = {"claimName": "runs"}
SPEC: dict[str, Any] = {
    **o.SPEC,
    "storage": STORAGE,
    "checkpoint": {"resume": "job", "resumeFromJob": "stage-1", "saveFreq": 10},
}
OTHER: dict[str, Any] = {**o.SPEC, "storage": STORAGE, "checkpoint": {"saveFreq": 10}}
SAVED = {"latestStep": 40, "path": "/mnt/rlt/runs/stage-1-22222222/checkpoints"}


def stage_1(spec: dict[str, Any] = OTHER, *, ended: str | None = "Succeeded", **status: Any) -> Manifest:
    """The other job, with a checkpoint unless `status` has another one."""
    condition = {"status": "True", "reason": "Any", "message": "", "observedGeneration": 1}
    conditions = [{**condition, "type": ended, "lastTransitionTime": "2026-01-02T03:00:00Z"}] if ended else []
    manifest = o.manifest(spec, name="stage-1")
    return {**manifest, "status": {"conditions": conditions, "checkpoint": SAVED, **status}}


def start(spec: dict[str, Any] = SPEC, other: Manifest | None = None) -> Loop:
    """The operator's process, with the new job and the other one."""
    loop = Loop(FakeApi({PATH: {"kind": KIND, **copy.deepcopy(o.manifest(spec)), "status": {}}}))
    if other:
        loop.cache.jobs.put(other)
    return loop


def accepted(loop: Loop) -> tuple[str, str, str]:
    found = find_condition(loop.api.status, C.ACCEPTED)
    assert found
    return found.status, found.reason, found.message


async def test_the_path_is_in_the_status_before_anything_is_created() -> None:
    loop = start(other=stage_1())
    await loop.run()
    checkpoint = load_resolved_spec(loop.api.status.resolved_spec or "")["checkpoint"]
    assert (checkpoint["resume"], checkpoint["resumeFromPath"]) == ("path", f"{SAVED['path']}/step-40")
    assert RAY_CLUSTER not in loop.api.objects


async def test_the_trainer_gets_the_path_even_if_the_other_job_is_deleted() -> None:
    loop = start(other=stage_1())
    await loop.run()
    loop.cache.jobs.forget((KEY[0], "stage-1"), loop.cache.jobs.version_of((KEY[0], "stage-1")))
    for _ in range(3):
        await loop.run()
    config = json.loads(loop.api.objects[CONFIG_MAP]["data"]["training.json"])
    assert config["checkpoint"]["resumeFromPath"] == f"{SAVED['path']}/step-40"
    assert "resumeFromJob" not in config["checkpoint"]
    assert RAY_CLUSTER in loop.api.objects


async def test_the_job_waits_for_the_end_of_the_other_one() -> None:
    loop = start(other=stage_1(ended=None))
    result = await loop.run()
    assert result.requeue_after == JOB_INTERVAL_S
    status, reason, message = accepted(loop)
    assert (status, reason) == ("False", "WaitingForJob")
    assert "stage-1 has not ended" in message
    assert loop.api.status.resolved_spec is None
    loop.cache.jobs.put(stage_1() | {"metadata": {**stage_1()["metadata"], "resourceVersion": "8"}})
    await loop.run()
    await loop.run()
    assert accepted(loop)[0] == "True"
    assert RAY_CLUSTER in loop.api.objects


async def test_a_job_that_does_not_exist_stalls_the_job() -> None:
    loop = start()
    await loop.run()
    assert "stage-1 does not exist" in accepted(loop)[2]
    stalled = find_condition(loop.api.status, C.STALLED)
    assert stalled
    assert stalled.status == "True"


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (stage_1(ended="Failed", checkpoint=None), "has ended without a checkpoint"),
        (stage_1(checkpoint={"path": SAVED["path"], "exportedPath": "/mnt/rlt/x"}), "has ended without a checkpoint"),
        (stage_1({**OTHER, "storage": {"claimName": "old"}}), "use spec.storage.claimName: old"),
        (stage_1({**OTHER, "storage": {"storageClassName": "nfs", "size": "1Gi"}}), "claimName: stage-1-storage"),
        (stage_1({**OTHER, "storage": {}, "checkpoint": {}}), "deleted with its pods"),
        (stage_1({**o.COMMAND_SPEC, "storage": STORAGE}), "has framework.type command, and this job builtin"),
    ],
)
async def test_a_job_without_a_usable_checkpoint_fails_the_job(other: Manifest, part: str) -> None:
    loop = start(other=other)
    await loop.run()
    status, reason, message = accepted(loop)
    assert (status, reason) == ("False", "CheckpointNotFound")
    assert message.startswith("spec.checkpoint.resumeFromJob: RLTrainingJob stage-1 ")
    assert part in message
    failed = find_condition(loop.api.status, C.FAILED)
    assert failed
    assert (failed.status, failed.reason) == ("True", "CheckpointNotFound")
    await loop.run()
    assert accepted(loop)[0] == "False"
    assert RAY_CLUSTER not in loop.api.objects
    assert set(loop.api.events) == {"CheckpointNotFound"}


async def test_the_path_follows_the_mount_path_of_this_job() -> None:
    spec = {**SPEC, "storage": {"claimName": "runs", "mountPath": "/data"}}
    loop = start(spec, stage_1())
    await loop.run()
    assert resume_path(loop.api.status) == "/data/runs/stage-1-22222222/checkpoints/step-40"


async def test_verl_gets_the_folder_of_its_step() -> None:
    spec = {**VERL, "storage": STORAGE, "checkpoint": SPEC["checkpoint"]}
    loop = start(spec, stage_1({**VERL, "storage": STORAGE}))
    await loop.run()
    assert resume_path(loop.api.status) == f"{SAVED['path']}/global_step_40"


def resume_path(status: RLTrainingJobStatus) -> str:
    checkpoint = load_resolved_spec(status.resolved_spec or "")["checkpoint"]
    return str(checkpoint["resumeFromPath"])
