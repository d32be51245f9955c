"""The webhook's answers: what is refused and how it is said, and what is let through whatever the rules say."""

from __future__ import annotations

import json
from typing import Any

import observed as o
import pytest

from rlt_operator.webhook.review import (
    LAST_APPLIED,
    MAX_FINDINGS,
    Runtimes,
    get_runtime_name,
    reject_deep_nesting,
    review,
)

Json = dict[str, Any]

WRONG = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}
RUNTIME = {
    "images": {"cpu": "localhost/rlt-trainer:cpu"},
    "nodePools": [{"name": "cpu", "resources": {"cpu": "4", "memory": "16Gi"}}],
}


def manifest(spec: Json, kind: str = "RLTrainingJob", **metadata: Any) -> Json:
    return {"apiVersion": "rlt.dev/v1alpha1", "kind": kind, "metadata": {"name": "sum", **metadata}, "spec": spec}


def asked(new: Json, old: Json | None = None) -> Json:
    request = {"uid": "u-1", "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answer(new: Json, old: Json | None = None, runtimes: Runtimes | None = None) -> Json:
    response: Json = review(asked(new, old), runtimes or {})["response"]
    return response


def applied(spec: Json, written: object, **metadata: Any) -> Json:
    """What `kubectl apply` sends: the API server has dropped what it does not know."""
    return manifest(spec, annotations={LAST_APPLIED: json.dumps(written)}, **metadata)


def fields(response: Json) -> list[str]:
    return [cause["field"] for cause in response["status"]["details"]["causes"]] if "status" in response else []


def test_what_is_right_is_allowed_and_the_answer_names_the_question() -> None:
    assert review(asked(manifest(o.SPEC)), {}) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_a_refusal_has_a_cause_for_each_field() -> None:
    response = answer(manifest(WRONG))
    status = response["status"]
    assert (response["allowed"], status["code"], status["reason"]) == (False, 422, "Invalid")
    assert (status["details"]["kind"], status["details"]["name"]) == ("RLTrainingJob", "sum")
    assert "spec.training.trainBatchSize" in fields(response)
    for cause, line in zip(status["details"]["causes"], status["message"].splitlines(), strict=True):
        assert line == f"{cause['field']}: {cause['message']}"
        assert "; " in cause["message"]


def test_a_runtime_is_judged_too() -> None:
    assert fields(answer(manifest({"nodePools": [{"name": "a"}]}, "RLRuntime"))) == ["spec.nodePools[0].resources"]


def test_the_runtime_counts() -> None:
    spec = {key: value for key, value in o.SPEC.items() if key != "cluster"} | {"runtimeRef": {"name": "r"}}
    assert get_runtime_name(asked(manifest(spec))) == "r"
    assert answer(manifest(spec), runtimes={"r": RUNTIME})["allowed"] is True
    assert answer(manifest(spec), runtimes={"r": {}})["allowed"] is False


def test_a_runtime_that_is_not_there_is_a_warning_and_one_that_cannot_be_read_is_none() -> None:
    job = manifest({**o.SPEC, "runtimeRef": {"name": "r"}})
    (warning,) = answer(job, runtimes={"r": None})["warnings"]
    assert warning.startswith("spec.runtimeRef.name: r: this RLRuntime does not exist yet")
    assert "warnings" not in answer(job)


def test_restarts_without_a_checkpoint_are_a_warning() -> None:
    restarts = {**o.SPEC, "failurePolicy": {"maxRestarts": 3}}
    (warning,) = answer(manifest(restarts))["warnings"]
    assert warning == (
        "spec.failurePolicy.maxRestarts: 3: each attempt starts from step 0, because checkpoint.saveFreq is -1; "
        "set checkpoint.saveFreq to 1 or more"
    )
    saved = {**restarts, "checkpoint": {"saveFreq": 5}}
    assert "deleted with the pods" in answer(manifest(saved))["warnings"][0]
    assert "warnings" not in answer(manifest({**saved, "storage": {"claimName": "runs"}}))
    assert "warnings" not in answer(manifest({**o.COMMAND_SPEC, "failurePolicy": {"maxRestarts": 3}}))


def test_a_runtimes_defaults_count_for_restarts_too() -> None:
    job = manifest({**o.SPEC, "runtimeRef": {"name": "r"}, "checkpoint": {"saveFreq": 5}})
    defaults = {"failurePolicy": {"maxRestarts": 3}, "storage": {"claimName": "runs"}}
    assert "warnings" not in answer(job, runtimes={"r": {"defaults": defaults}})
    assert "warnings" in answer(job, runtimes={"r": {"defaults": {**defaults, "checkpoint": {"resume": "never"}}}})
    assert "warnings" not in answer(manifest({**job["spec"], "failurePolicy": {"maxRestarts": 3}}))


def test_suspension_is_always_allowed() -> None:
    """Even of a job that was stored before a rule came that it breaks."""
    assert answer(manifest({**WRONG, "suspend": True}), manifest(WRONG))["allowed"] is True


def test_what_is_new_and_wrong_is_refused_in_a_change() -> None:
    response = answer(manifest({**WRONG, "activeDeadlineSeconds": 0}), manifest(WRONG))
    assert fields(response) == ["spec.activeDeadlineSeconds"]


def test_what_is_fixed_is_refused_in_a_change() -> None:
    changed = {**o.SPEC, "model": {"path": "/mnt/rlt/other"}}
    assert "spec.model" in fields(answer(manifest(changed), manifest(o.SPEC)))


def test_metadata_may_change_and_a_job_that_is_deleted_may_end() -> None:
    assert answer(manifest(WRONG, labels={"a": "b"}), manifest(WRONG))["allowed"] is True
    ending = manifest({**WRONG, "model": {}}, deletionTimestamp="2026-01-02T03:04:05Z")
    assert answer(ending, manifest(o.SPEC))["allowed"] is True


def test_a_job_is_held_to_the_runtime_that_it_started_with() -> None:
    spec = {**o.SPEC, "runtimeRef": {"name": "r"}}
    snapshot = {"name": "r", "generation": 1, "spec": RUNTIME}
    job = {**manifest({**spec, "suspend": True}), "status": {"runtimeSnapshot": snapshot}}
    assert get_runtime_name(asked(job, manifest(spec))) is None
    assert answer(job, manifest(spec))["allowed"] is True


def test_a_field_that_was_dropped_is_named() -> None:
    written = {"spec": {**o.SPEC, "trainning": {}, "rollout": {"temprature": 1}}}
    response = answer(applied({**o.SPEC, "rollout": {}}, written))
    assert set(fields(response)) == {"spec.trainning", "spec.rollout.temprature"}
    assert "did you mean training?" in response["status"]["message"]


def test_a_field_that_was_dropped_in_a_change_is_named_though_nothing_has_changed() -> None:
    before = applied(o.SPEC, {"spec": o.SPEC})
    assert fields(answer(applied(o.SPEC, {"spec": {**o.SPEC, "suspnd": True}}), before)) == ["spec.suspnd"]


def test_what_was_applied_long_ago_does_not_count() -> None:
    written = {"spec": {**o.SPEC, "suspnd": True}}
    before, after = applied(o.SPEC, written), applied({**o.SPEC, "suspend": True}, written)
    assert answer(after, before)["allowed"] is True


def test_any_text_may_stand_in_the_annotation() -> None:
    for text in ("", "{", "[]", "null", '{"spec": 3}'):
        assert answer(manifest(o.SPEC, annotations={LAST_APPLIED: text}))["allowed"] is True


def test_many_findings_are_cut_short() -> None:
    response = answer(manifest({**o.SPEC, **{f"unknown{number}": 1 for number in range(50)}}))
    assert len(fields(response)) == MAX_FINDINGS
    assert response["status"]["message"].splitlines()[-1] == "and more"


def test_what_nests_deeper_than_pythons_parser_is_refused_by_its_uid() -> None:
    text = '{"kind": "AdmissionReview", "request": {"uid": "u-1", "object": ' + "[" * 5000 + "]" * 5000 + "}}"
    with pytest.raises(RecursionError):
        json.loads(text)
    answer = reject_deep_nesting(text)["response"]
    assert (answer["uid"], answer["allowed"]) == ("u-1", False)
    assert "spec: nests too deeply" in answer["status"]["message"]
