"""The webhook's responses: what is rejected, with which message, and what is always allowed."""

from __future__ import annotations

import json
from typing import Any

import observed as o
import pytest

from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_operator.webhook.review import (
    LAST_APPLIED,
    MAX_FINDINGS,
    Runtimes,
    get_runtime_name,
    is_review,
    needs_policy,
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
    """The object that `kubectl apply` sends, after the API server has dropped unknown fields."""
    return manifest(spec, annotations={LAST_APPLIED: json.dumps(written)}, **metadata)


def fields(response: Json) -> list[str]:
    return [cause["field"] for cause in response["status"]["details"]["causes"]] if "status" in response else []


def test_a_valid_job_is_allowed() -> None:
    assert review(asked(manifest(o.SPEC)), {}) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_a_rejection_has_a_cause_for_each_field() -> None:
    response = answer(manifest(WRONG))
    status = response["status"]
    assert (response["allowed"], status["code"], status["reason"]) == (False, 422, "Invalid")
    assert (status["details"]["kind"], status["details"]["name"]) == ("RLTrainingJob", "sum")
    assert "spec.training.trainBatchSize" in fields(response)
    for cause, line in zip(status["details"]["causes"], status["message"].splitlines(), strict=True):
        assert line == f"{cause['field']}: {cause['message']}"
        assert "; " in cause["message"]


def test_runtimes_are_validated() -> None:
    assert fields(answer(manifest({"nodePools": [{"name": "a"}]}, "RLRuntime"))) == ["spec.nodePools[0].resources"]


def test_the_runtime_is_part_of_the_validated_spec() -> None:
    spec = {key: value for key, value in o.SPEC.items() if key != "cluster"} | {"runtimeRef": {"name": "r"}}
    assert get_runtime_name(asked(manifest(spec))) == "r"
    assert answer(manifest(spec), runtimes={"r": RUNTIME})["allowed"] is True
    assert answer(manifest(spec), runtimes={"r": {}})["allowed"] is False


def test_a_missing_runtime_is_a_warning() -> None:
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


def test_warnings_include_the_defaults_of_the_runtime() -> None:
    job = manifest({**o.SPEC, "runtimeRef": {"name": "r"}, "checkpoint": {"saveFreq": 5}})
    defaults = {"failurePolicy": {"maxRestarts": 3}, "storage": {"claimName": "runs"}}
    assert "warnings" not in answer(job, runtimes={"r": {"defaults": defaults}})
    assert "warnings" in answer(job, runtimes={"r": {"defaults": {**defaults, "checkpoint": {"resume": "never"}}}})
    assert "warnings" not in answer(manifest({**job["spec"], "failurePolicy": {"maxRestarts": 3}}))


def test_a_plain_text_secret_is_a_warning() -> None:
    """Also if the runtime of the job does not exist, and in the defaults of a runtime."""
    env = [{"name": "HF_TOKEN", "value": "correct-horse"}]
    job = {**o.SPEC, "cluster": {**o.SPEC["cluster"], "env": env}}
    for new in (manifest(job), manifest({**job, "runtimeRef": {"name": "r"}})):
        (warning,) = answer(new, runtimes={})["warnings"]
        assert warning.startswith("spec.cluster.env[0].value: ***: HF_TOKEN has a plain-text value")
        assert "warnings" not in answer({**new, "metadata": {"name": "sum", "labels": {"a": "b"}}}, new)
    (warning,) = answer(manifest({"defaults": {"cluster": {"env": env}}}, "RLRuntime"))["warnings"]
    assert warning.startswith("spec.defaults.cluster.env[0].value: ***")


def test_a_rejection_does_not_repeat_a_secret() -> None:
    wrong = {**o.SPEC, "cluster": {**o.SPEC["cluster"], "image": ["hf_" + "aBcDeFgH" * 4]}}
    text = json.dumps(answer(manifest(wrong)))
    assert "***" in text
    assert "aBcDeFgH" not in text


def test_the_policy_of_the_namespace() -> None:
    spec = {key: value for key, value in o.SPEC.items() if key != "cluster"}
    policy = RuntimePolicy("r", required=True)
    new = asked(manifest(spec))
    assert (needs_policy(new), get_runtime_name(new, policy)) == (True, "r")
    assert review(new, {"r": RUNTIME}, policy)["response"]["allowed"] is True
    assert review(new, {}, RuntimePolicy(unknown=True))["response"]["allowed"] is True, "the operator validates it"
    assert "spec.cluster.image" in fields(review(new, {}, RuntimePolicy())["response"])
    required = review(asked(manifest(o.SPEC)), {}, RuntimePolicy(required=True))["response"]
    assert fields(required) == ["spec.runtimeRef"]
    (warning,) = review(new, {"r": None}, policy)["response"]["warnings"]
    assert warning.startswith("spec.runtimeRef.name: r: this RLRuntime does not exist yet")


def test_a_resolved_job_does_not_depend_on_the_namespace() -> None:
    spec = {key: value for key, value in o.SPEC.items() if key != "cluster"}
    status = {"resolvedSpec": "{}", "runtime": {"name": "r", "generation": 1}}
    old, new = ({**manifest({**spec, "suspend": suspend}), "status": status} for suspend in (False, True))
    admission = asked(new, old)
    assert (needs_policy(admission), get_runtime_name(admission, RuntimePolicy("other"))) == (False, "r")
    late = {**manifest({**spec, "activeDeadlineSeconds": 0}), "status": status}
    assert fields(answer(late, old, {"r": RUNTIME})) == ["spec.activeDeadlineSeconds"]


def test_a_new_queue_label_is_compared_with_the_limits() -> None:
    limits = [{"field": "spec.scheduling.queueName", "allowed": ["small"]}]
    spec = {**o.SPEC, "runtimeRef": {"name": "r"}}
    before, after = (manifest(spec, labels={"kueue.x-k8s.io/queue-name": queue}) for queue in ("small", "big"))
    response = answer(after, before, {"r": {**RUNTIME, "limits": limits}})
    assert fields(response) == ["metadata.labels[kueue.x-k8s.io/queue-name]"]


def test_suspension_is_always_allowed() -> None:
    """Also for a stored job that a newer rule rejects."""
    assert answer(manifest({**WRONG, "suspend": True}), manifest(WRONG))["allowed"] is True


def test_an_update_is_rejected_for_new_findings_only() -> None:
    response = answer(manifest({**WRONG, "activeDeadlineSeconds": 0}), manifest(WRONG))
    assert fields(response) == ["spec.activeDeadlineSeconds"]


def test_a_change_of_an_immutable_field_is_rejected() -> None:
    changed = {**o.SPEC, "model": {"path": "/mnt/rlt/other"}}
    assert "spec.model" in fields(answer(manifest(changed), manifest(o.SPEC)))


def test_the_number_of_rollout_pods_can_change_within_its_bounds_and_the_limits_of_the_runtime() -> None:
    (group,) = o.SPEC["cluster"]["workers"]
    engines = {**group, "name": "engines", "minReplicas": 1, "maxReplicas": 8}
    rollout = {"mode": "separate", "workerGroup": "engines"}
    cluster = {**o.SPEC["cluster"], "workers": [group, engines]}
    spec = {**o.SPEC, "rollout": rollout, "cluster": cluster, "runtimeRef": {"name": "r"}}
    limited = {**RUNTIME, "limits": [{"field": "spec.cluster.workers[].replicas", "max": 6}]}
    for replicas, runtime, found in (
        (8, RUNTIME, []),
        (9, RUNTIME, ["spec.rolloutReplicas"]),
        (6, limited, []),
        (7, limited, ["spec.rolloutReplicas"]),
    ):
        assert fields(answer(manifest({**spec, "rolloutReplicas": replicas}), manifest(spec), {"r": runtime})) == found


def test_metadata_changes_and_deletions_are_allowed() -> None:
    assert answer(manifest(WRONG, labels={"a": "b"}), manifest(WRONG))["allowed"] is True
    ending = manifest({**WRONG, "model": {}}, deletionTimestamp="2026-01-02T03:04:05Z")
    assert answer(ending, manifest(o.SPEC))["allowed"] is True


def test_a_changed_runtime_does_not_prevent_a_suspension() -> None:
    spec = {**o.SPEC, "runtimeRef": {"name": "r"}}
    stricter = {**RUNTIME, "limits": [{"field": "spec.training.totalSteps", "max": 1}]}
    for runtime in (stricter, None):
        assert answer(manifest({**spec, "suspend": True}), manifest(spec), {"r": runtime})["allowed"] is True


def test_a_dropped_field_is_reported() -> None:
    written = {"spec": {**o.SPEC, "trainning": {}, "rollout": {"temprature": 1}}}
    response = answer(applied({**o.SPEC, "rollout": {}}, written))
    assert set(fields(response)) == {"spec.trainning", "spec.rollout.temprature"}
    assert "did you mean training?" in response["status"]["message"]


def test_a_dropped_field_of_an_update_is_reported() -> None:
    before = applied(o.SPEC, {"spec": o.SPEC})
    assert fields(answer(applied(o.SPEC, {"spec": {**o.SPEC, "suspnd": True}}), before)) == ["spec.suspnd"]


def test_an_unchanged_last_applied_annotation_is_ignored() -> None:
    written = {"spec": {**o.SPEC, "suspnd": True}}
    before = applied(o.SPEC, written)
    after = applied({**o.SPEC, "suspend": True}, written)
    assert answer(after, before)["allowed"] is True


def test_the_annotation_may_hold_any_text() -> None:
    for text in ("", "{", "[]", "null", '{"spec": 3}'):
        assert answer(manifest(o.SPEC, annotations={LAST_APPLIED: text}))["allowed"] is True


def test_the_number_of_findings_is_limited() -> None:
    response = answer(manifest({**o.SPEC, **{f"unknown{number}": 1 for number in range(50)}}))
    assert len(fields(response)) == MAX_FINDINGS
    assert response["status"]["message"].splitlines()[-1] == "and more"


def test_a_review_that_nests_too_deeply_is_rejected() -> None:
    text = '{"kind": "AdmissionReview", "request": {"uid": "u-1", "object": ' + "[" * 5000 + "]" * 5000 + "}}"
    with pytest.raises(RecursionError):
        json.loads(text)
    rejection = reject_deep_nesting(text.encode())
    assert rejection
    answer = rejection["response"]
    assert (answer["uid"], answer["allowed"]) == ("u-1", False)
    assert "spec: nests too deeply" in answer["status"]["message"]


JOB_REVIEW: Json = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u-1",
        "operation": "CREATE",
        "namespace": "demo",
        "object": {"kind": "RLTrainingJob", "metadata": {}, "spec": {}},
    },
}


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": 1},
        {"operation": "CONNECT"},
        {"namespace": ["demo"]},
        {"object": None},
        {"object": {"kind": "RLTrainingJob", "metadata": {}, "spec": []}},
        {"object": {"metadata": {}, "spec": {}}},
        {"oldObject": "x"},
    ],
)
def test_other_json_is_not_taken_for_a_review(changes: Json) -> None:
    assert is_review(JOB_REVIEW)
    assert not is_review({**JOB_REVIEW, "request": {**JOB_REVIEW["request"], **changes}})
    assert not is_review([JOB_REVIEW])
    assert not is_review({"request": JOB_REVIEW["request"]})
