"""What must be filled in for a converted job to be valid: all of it, also what errors of other fields would hide."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from rlt_api.findings.finding import Finding
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_manifest, validate_structure

Json = dict[str, Any]
MAX_ROUNDS = 20
DEVICE = re.compile(r"(^|\s|\.)device=cpu\b")
"""A setting with which a program trains on CPUs."""


def list_missing(manifest: Json) -> list[Finding]:
    """List the errors of a converted job. The rules apply to the blocks without errors of types or missing
    fields, which would hide the errors of the rules."""
    manifest = deepcopy(manifest)
    found = list[Finding]()
    for _ in range(MAX_ROUNDS):
        wrong = list(validate_structure(manifest["spec"], RLTrainingJobSpec, "spec"))
        found += [each for each in wrong or validate_manifest(manifest, {}) if not _is_known(each, found)]
        removed = [_remove(manifest, each.field) for each in wrong]
        if not any(removed):
            break
    if not _has_devices(manifest["spec"]):
        fix = "add it, such as {resourceName: nvidia.com/gpu, count: 8}"
        found.append(
            Finding("spec.cluster.workers[0].accelerator", "none", "is not in the source", fix, rule="convert")
        )
    return found


def _is_known(finding: Finding, found: list[Finding]) -> bool:
    """Whether an error about the field, or about a field in it, is listed."""
    return any(f"{each.field}.".startswith((f"{finding.field}.", f"{finding.field}[")) for each in found)


def _remove(manifest: Json, field: str) -> bool:
    """Remove a field; the innermost block if the field is missing in it. Whether something was removed."""
    node: Any = manifest
    owners: list[tuple[Any, Any]] = []
    for part in re.findall(r"[^.\[\]]+", field):
        key = int(part) if isinstance(node, list) and part.isdigit() else part
        if isinstance(node, dict) and key not in node:
            break
        owners.append((node, key))
        node = node[key] if isinstance(node, dict | list) else None
    owner, key = owners[-1]
    if len(owners) < 2 or isinstance(key, int) or isinstance(owner, list):
        return False
    del owner[key]
    return True


def _has_devices(spec: Json) -> bool:
    """Whether a group has accelerators, or the source gives its CPUs and no devices."""
    groups = spec.get("cluster", {}).get("workers", [])
    if any("accelerator" in group or "resources" in group for group in groups if isinstance(group, dict)):
        return True
    return any(DEVICE.search(str(word)) for word in spec.get("framework", {}).get("command") or [])
