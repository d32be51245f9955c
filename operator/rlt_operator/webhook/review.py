"""The response to an AdmissionReview, in JSON. Pure, with the same findings as `rlt validate`.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rlt_api.findings.finding import Finding
from rlt_api.schema.crd import GROUP, KIND, RUNTIME_KIND
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.plain_secrets import warn_plain_secrets
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_api.spec.runtime_policy import ANY_RUNTIME, RuntimePolicy, add_default_runtime
from rlt_api.validation.validate import (
    get_queue_label,
    given_paths,
    validate_change,
    validate_job,
    validate_manifest,
    validate_structure,
)
from rlt_api.validation.warnings import find_warnings

Json = dict[str, Any]
Runtimes = Mapping[str, Mapping[str, Any] | None]
"""Specs of RLRuntimes by name. None: it does not exist. Missing: it could not be read."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` stores the manifest of its user."""
MAX_UID_POSITION = 4096
"""The uid of a request is before this character of a review."""
MAX_FINDINGS = 20
"""Maximum number of findings in a response. The search stops there, because a full search could take seconds."""


def review(admission: Json, runtimes: Runtimes, policy: RuntimePolicy = ANY_RUNTIME) -> Json:
    """Respond to an AdmissionReview (admission.k8s.io/v1) of a CREATE or UPDATE. `policy` is the namespace's."""
    request = admission["request"]
    new: Json = request["object"]
    old: Json | None = request.get("oldObject")
    found = list(islice(_find_new_findings(new, old, runtimes, policy), MAX_FINDINGS + 1))
    response: Json = {"uid": request["uid"], "allowed": not found}
    if found:
        response["status"] = _build_rejection(request, found)
    too_large = any(each.rule == "size" for each in found)
    if not too_large and (warnings := list(_find_warnings(new, old, runtimes, policy))):
        response["warnings"] = warnings
    return {"apiVersion": admission["apiVersion"], "kind": admission["kind"], "response": response}


def is_review(admission: Any) -> bool:
    """Whether it has the parts of an AdmissionReview that `review` reads. A client may not be the API server."""
    request = admission.get("request") if isinstance(admission, dict) else None
    if not isinstance(request, dict) or not {"apiVersion", "kind"} <= admission.keys():
        return False
    objects = [request.get("object"), *([request["oldObject"]] if request.get("oldObject") else [])]
    texts = (request.get("uid"), request.get("namespace", ""))
    known = request.get("operation") in ("CREATE", "UPDATE")
    return known and all(isinstance(text, str) for text in texts) and all(map(_is_object, objects))


def _is_object(value: Any) -> bool:
    blocks = [value.get(name, {}) for name in ("metadata", "spec", "status")] if isinstance(value, dict) else [None]
    return all(isinstance(block, dict) for block in blocks) and {"kind", "metadata", "spec"} <= value.keys()


def reject_deep_nesting(body: bytes) -> Json | None:
    """Reject a review that nests too deeply for Python's parser. Only its uid can be read; None without one."""
    start = body[:MAX_UID_POSITION].decode(errors="replace")
    found = re.search(r'"uid":\s*"([^"]+)"', start)  # the uid of the request comes first
    if found is None:
        return None
    status = {"code": 422, "reason": "Invalid", "message": "spec: nests too deeply; at most 100 levels are allowed"}
    response = {"uid": found[1], "allowed": False, "status": status}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def needs_policy(admission: Json) -> bool:
    """Whether the response depends on the labels of the namespace: for a job without a resolved spec."""
    new: Json = admission["request"]["object"]
    return bool(new["kind"] == KIND and not _is_resolved(new))


def get_runtime_name(admission: Json, policy: RuntimePolicy = ANY_RUNTIME) -> str | None:
    """Name of the RLRuntime that the response depends on."""
    new: Json = admission["request"]["object"]
    if new["kind"] != KIND:
        return None
    return _get_runtime_name(new, _get_kept_policy(new) if _is_resolved(new) else policy)


def _get_runtime_name(job: Json, policy: RuntimePolicy) -> str | None:
    reference = add_default_runtime(job["spec"], policy).get("runtimeRef")
    return reference["name"] if reference else None


def _find_new_findings(new: Json, old: Json | None, runtimes: Runtimes, policy: RuntimePolicy) -> Iterator[Finding]:
    """Findings that the old object does not have: a new rule never blocks updates of a stored object."""
    if "deletionTimestamp" in new["metadata"]:
        return
    if _parse_last_applied(new) != (_parse_last_applied(old) if old else None):
        yield from _find_dropped_fields(new)
    if old is not None and new["spec"] == old["spec"] and _get_queue(new) == _get_queue(old):
        return
    if old is not None and new["kind"] == KIND:
        yield from validate_change(old["spec"], new["spec"])
    if _is_resolved(new):
        policy = _get_kept_policy(new)
    available = {name: spec for name, spec in runtimes.items() if spec is not None}
    before = validate_manifest(old, available, policy) if old else ()
    yield from (finding for finding in validate_manifest(new, available, policy) if finding not in before)


def _get_queue(manifest: Json) -> str | None:
    return get_queue_label(manifest["metadata"])


def _find_dropped_fields(manifest: Json) -> Iterator[Finding]:
    """Unknown fields in the user's manifest. The API server drops them if field validation is off."""
    written = _parse_last_applied(manifest).get("spec")
    spec = manifest["spec"]
    if isinstance(written, dict):
        lost = set(given_paths(written, "spec")) - set(given_paths(spec, "spec"))
        model = RLRuntimeSpec if manifest["kind"] == RUNTIME_KIND else RLTrainingJobSpec
        yield from (finding for finding in validate_structure(written, model, "spec") if finding.field in lost)


def _parse_last_applied(manifest: Json) -> Json:
    text = manifest["metadata"].get("annotations", {}).get(LAST_APPLIED, "{}")
    try:
        written = json.loads(text)
    except ValueError:  # an annotation may hold anything
        return {}
    return written if isinstance(written, dict) else {}


def _is_resolved(manifest: Json) -> bool:
    """Whether the operator has accepted the job and keeps its resolved spec."""
    return "resolvedSpec" in manifest.get("status", {})


def _get_kept_policy(job: Json) -> RuntimePolicy:
    """The policy for a resolved job: the runtime of its acceptance, with the limits that it has now."""
    return RuntimePolicy(job["status"].get("runtime", {}).get("name"))


def _find_warnings(new: Json, old: Json | None, runtimes: Runtimes, policy: RuntimePolicy) -> Iterator[str]:
    if old is None or old["spec"] != new["spec"]:
        yield from warn_plain_secrets(new["spec"])
    if old is not None or new["kind"] != KIND:
        return
    name = _get_runtime_name(new, policy)
    if name is not None and name in runtimes and runtimes[name] is None:
        yield f"spec.runtimeRef.name: {name}: this RLRuntime does not exist yet; the job waits until it is created"
    runtime = runtimes.get(name) if name else None
    available = name is None or runtime is not None
    if available and (spec := validate_job(new["metadata"].get("name", "x"), new["spec"], runtime).spec):
        yield from find_warnings(spec)


def _build_rejection(request: Json, found: Sequence[Finding]) -> Json:
    shown = found[:MAX_FINDINGS]
    more = ["and more"] if len(found) > len(shown) else []
    return {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "\n".join([*map(str, shown), *more]),
        "details": {
            "group": GROUP,
            "kind": request["object"]["kind"],
            "name": request["object"]["metadata"]["name"],
            "causes": [
                {
                    "reason": "FieldValueInvalid",
                    "field": each.field,
                    "message": f"{each.value}: {each.message}; {each.fix}",
                }
                for each in shown
            ],
        },
    }
