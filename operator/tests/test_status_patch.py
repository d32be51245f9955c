"""The write of a status holds what has changed, and gives the status that it was built from."""

from __future__ import annotations

import json
from dataclasses import replace

import observed as o
import pytest
from json_patch import apply_patch
from planned import status_of

from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core.job import Manifest
from rlt_operator.observation import Observed
from rlt_operator.reconcile.plan import plan
from rlt_operator.reconcile.status_patch import build_status_patch, dump_changed

NEW = replace(o.FRESH, job=replace(o.FRESH.job, status=o.FRESH.job.status.model_copy(update={"resolved_spec": None})))

LATER = o.report(91, updated="2026-01-02T03:05:05Z")
STEP = replace(o.STARTED, ray=replace(o.running(), progress=LATER))


def build_stored(observed: Observed) -> tuple[Manifest, Manifest, list[Manifest]]:
    """The status before a plan and after it, and the patch."""
    old = observed.job.status
    new = status_of(plan(observed, o.NOW))
    if old == RLTrainingJobStatus():
        return {}, new.to_json(), build_status_patch("7", None, new.to_json())
    return old.to_json(), new.to_json(), build_status_patch("7", dump_changed(old, new), dump_changed(new, old))


@pytest.mark.parametrize("observed", [NEW, o.FRESH, o.PROVISIONING, o.RUNNING, o.suspend(o.STARTED), STEP])
def test_the_patch_gives_the_new_status(observed: Observed) -> None:
    before, after, patch = build_stored(observed)
    stored = {"metadata": {"resourceVersion": "7"}, **({"status": before} if before else {})}
    assert apply_patch(stored, patch)["status"] == after


def test_a_new_step_is_the_progress_alone() -> None:
    _, _, patch = build_stored(STEP)
    paths = [each["path"] for each in patch]
    assert paths == ["/metadata/resourceVersion", "/status/progress", "/status/currentAttempt"]


def test_the_resolved_spec_keeps_its_nulls() -> None:
    """A default that a later version introduces does not apply to the job."""
    _, after, patch = build_stored(NEW)
    (resolved,) = (each["value"] for each in patch if each["path"] == "/status/resolvedSpec")
    assert resolved == after["resolvedSpec"]
    assert None in json.loads(resolved).values()


def test_fields_of_a_newer_operator_stay() -> None:
    before, _, patch = build_stored(STEP)
    stored = {"metadata": {"resourceVersion": "7"}, "status": {**before, "later": 1}}
    assert apply_patch(stored, patch)["status"]["later"] == 1


def test_a_first_value_does_not_replace_the_status() -> None:
    """The part of the old status that changes is empty."""
    old = o.STARTED.job.status
    new = old.model_copy(update={"completion_time": "2026-01-02T03:04:05Z"})
    patch = build_status_patch("7", dump_changed(old, new), dump_changed(new, old))
    assert patch[1:] == [{"op": "add", "path": "/status/completionTime", "value": "2026-01-02T03:04:05Z"}]


def test_a_field_without_a_value_is_removed() -> None:
    patch = build_status_patch("7", {"message": "a", "phase": "Failed"}, {"phase": "Failed"})
    assert patch[1:] == [{"op": "remove", "path": "/status/message"}]
