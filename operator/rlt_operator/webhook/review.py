"""An AdmissionReview answered, in JSON: pure, and with the same findings as `rlt validate`.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rlt_api.crd import GROUP, KIND, RUNTIME_KIND
from rlt_api.finding import Finding
from rlt_api.runtime import RLRuntimeSpec
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.validation import given_paths, validate_change, validate_job, validate_manifest, validate_structure
from rlt_api.warnings import find_warnings

Json = dict[str, Any]
Runtimes = Mapping[str, Mapping[str, Any] | None]
"""Specs of RLRuntimes by name. None: there is none of that name. Not in it: nobody knows."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` keeps what its user wrote."""
MAX_FINDINGS = 20
"""As many are told of one manifest: what is not told is not looked for, which could take seconds."""


def review(asked: Json, runtimes: Runtimes) -> Json:
    """The answer to an AdmissionReview (admission.k8s.io/v1) of a CREATE or UPDATE."""
    request = asked["request"]
    new: Json = request["object"]
    old: Json | None = request.get("oldObject")
    found = list(islice(_findings(new, old, runtimes), MAX_FINDINGS + 1))
    response: Json = {"uid": request["uid"], "allowed": not found}
    if found:
        response["status"] = _refusal(request, found)
    if warnings := list(_warnings(new, old, runtimes)):
        response["warnings"] = warnings
    return {"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": response}


def too_deep(text: str) -> Json:
    """The refusal of a review that nests deeper than Python's parser goes: nothing of it can be read but its uid."""
    found = re.search(r'"uid":\s*"([^"]+)"', text)  # the request's own comes first
    assert found
    status = {"code": 422, "reason": "Invalid", "message": "spec: nests too deeply; at most 100 levels are allowed"}
    response = {"uid": found[1], "allowed": False, "status": status}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def runtime_name(asked: Json) -> str | None:
    """Name of the RLRuntime that an answer depends on."""
    new: Json = asked["request"]["object"]
    reference = new["spec"].get("runtimeRef") if new["kind"] == KIND else None
    return reference["name"] if reference and not _snapshot(new) else None


def _findings(new: Json, old: Json | None, runtimes: Runtimes) -> Iterator[Finding]:
    """What is wrong and was not so before: rules that came later never lock an object that is stored already."""
    if "deletionTimestamp" in new["metadata"]:
        return
    if _written(new) != (_written(old) if old else None):
        yield from _dropped(new)
    if old is not None and new["spec"] == old["spec"]:
        return
    if old is not None and new["kind"] == KIND:
        yield from validate_change(old["spec"], new["spec"])
    at_hand = {name: spec for name, spec in runtimes.items() if spec is not None} | _snapshot(new)
    before = validate_manifest(old, at_hand) if old else ()
    yield from (finding for finding in validate_manifest(new, at_hand) if finding not in before)


def _dropped(manifest: Json) -> Iterator[Finding]:
    """What the user wrote and the API server did not know: it drops that where validation is switched off."""
    written, spec = _written(manifest).get("spec"), manifest["spec"]
    if isinstance(written, dict):
        lost = set(given_paths(written, "spec")) - set(given_paths(spec, "spec"))
        model = RLRuntimeSpec if manifest["kind"] == RUNTIME_KIND else RLTrainingJobSpec
        yield from (finding for finding in validate_structure(written, model, "spec") if finding.field in lost)


def _written(manifest: Json) -> Json:
    text = manifest["metadata"].get("annotations", {}).get(LAST_APPLIED, "{}")
    try:
        written = json.loads(text)
    except ValueError:  # an annotation may hold anything
        return {}
    return written if isinstance(written, dict) else {}


def _snapshot(manifest: Json) -> dict[str, Mapping[str, Any]]:
    """The runtime that the job has started with: it counts, whatever became of the runtime since."""
    snapshot = manifest.get("status", {}).get("runtimeSnapshot") if manifest["kind"] == KIND else None
    return {snapshot["name"]: snapshot["spec"]} if snapshot else {}


def _warnings(new: Json, old: Json | None, runtimes: Runtimes) -> Iterator[str]:
    if old is not None or new["kind"] != KIND:
        return
    name = new["spec"].get("runtimeRef", {}).get("name")
    if name in runtimes and runtimes[name] is None:
        yield f"spec.runtimeRef.name: {name}: there is no such RLRuntime yet; the job waits until there is one"
    at_hand = name is None or runtimes.get(name) is not None
    if at_hand and (spec := validate_job(new["metadata"].get("name", "x"), new["spec"], runtimes.get(name)).spec):
        yield from find_warnings(spec)


def _refusal(request: Json, found: Sequence[Finding]) -> Json:
    told = found[:MAX_FINDINGS]
    more = ["and more"] if len(found) > len(told) else []
    return {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "\n".join([*map(str, told), *more]),
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
                for each in told
            ],
        },
    }
