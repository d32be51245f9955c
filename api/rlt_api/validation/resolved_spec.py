"""The resolved spec of a job: the job merged with its runtime, with every default written out, as JSON.

The operator builds it once, keeps it as a text in status.resolvedSpec, and reads it in every later reconciliation. A
runtime that is edited later, and an operator with other defaults, do not change the job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from rlt_api.blocks.framework import MAX_STEPS
from rlt_api.blocks.rewards import Reward
from rlt_api.findings.finding import Finding, printable
from rlt_api.frameworks.registry import get_framework
from rlt_api.frameworks.replaceable_pods import apply_rollout_replicas
from rlt_api.schema.model_schema import load_schema
from rlt_api.schema.normalize import normalize
from rlt_api.spec.hub_downloads import build_download_steps
from rlt_api.spec.immutability import IMMUTABLE_BLOCKS
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.model_images import replace_by_mounts
from rlt_api.spec.objects import build_object_step, find_root, replace_by_files
from rlt_api.spec.runtime import resolve
from rlt_api.spec.training_config import PRESET_REWARD
from rlt_api.validation.structure import convert_errors
from rlt_api.validation.validate import Validated

Json = Mapping[str, Any]

MUTABLE_FIELDS = frozenset(map(to_camel, RLTrainingJobSpec.model_fields)) - set(IMMUTABLE_BLOCKS)
"""Fields of a job that can change. Their current values have precedence over the resolved spec's values."""


def build_resolved_spec(job: Json, runtime: Json | None) -> dict[str, Any]:
    """Build the resolved spec of a valid job. Mutable fields have the values of the runtime, or null.

    Fields without a value are null, so that a default that a later version introduces does not apply to the job.
    """
    stored = normalize(job, load_schema(RLTrainingJobSpec))
    immutable = {key: value for key, value in stored.items() if key not in MUTABLE_FIELDS}
    spec = RLTrainingJobSpec.model_validate(resolve(immutable, runtime), by_alias=True, by_name=False)
    resolved = spec.model_dump(mode="json", by_alias=True)
    if get_framework(spec).reads_fields:
        _add_dependent_defaults(resolved, spec)
    return resolved


def read_resolved_spec(resolved: Json, job: Json) -> Validated:
    """Read a resolved spec, with the current values of the job for the mutable fields.

    The findings are fields and values that this version does not have. If they are fields alone, which a newer operator
    has written, the result has a spec without them. A null has no effect and no finding.
    """
    if not resolved:
        fix = "create the job again under another name"
        return Validated(
            (Finding("status.resolvedSpec", "empty", "is not the JSON of a spec", fix, rule="json"),), None
        )
    mutable = {key: value for key, value in job.items() if key in MUTABLE_FIELDS and value is not None}
    try:
        spec = RLTrainingJobSpec.model_validate({**resolved, **mutable}, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        findings = tuple(convert_errors(error, RLTrainingJobSpec, "status.resolvedSpec"))
        if any(problem["type"] != "extra_forbidden" for problem in problems):
            return Validated(findings, None)
        known = RLTrainingJobSpec.model_validate({**resolved, **mutable}, by_alias=True, by_name=False, extra="ignore")
        given = zip(findings, (problem["input"] for problem in problems), strict=False)
        newer = tuple(_report_newer_field(each, value) for each, value in given if value is not None)
        return Validated(newer, apply_rollout_replicas(known))
    return Validated((), apply_rollout_replicas(spec))


def _report_newer_field(unknown: Finding, value: object) -> Finding:
    message = "is a field that only a newer version of the operator has"
    fix = "install that version again, or create the job again under another name"
    return Finding(unknown.field, printable(json.dumps(value)), message, fix, rule=unknown.rule)


def dump_resolved_spec(resolved: Json) -> str:
    """Return the text of status.resolvedSpec."""
    return json.dumps(resolved, ensure_ascii=False, separators=(",", ":"))


def load_resolved_spec(text: str) -> dict[str, Any]:
    """Parse status.resolvedSpec. Empty if it is not a JSON object: another program has written it."""
    try:
        resolved = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return resolved if isinstance(resolved, dict) else {}


def get_resolved_spec(manifest: Json) -> dict[str, Any]:
    """Return the resolved spec in the status of a job. Empty until the job is accepted."""
    return load_resolved_spec(manifest.get("status", {}).get("resolvedSpec", ""))


def _add_dependent_defaults(resolved: dict[str, Any], spec: RLTrainingJobSpec) -> None:
    """Add the defaults that depend on other fields."""
    if not spec.rewards and spec.data and spec.data.preset in PRESET_REWARD:
        resolved["rewards"] = [Reward(name=PRESET_REWARD[spec.data.preset]).model_dump(mode="json", by_alias=True)]
    if spec.training.ppo_mini_batch_size is None:
        resolved["training"]["ppoMiniBatchSize"] = spec.training.train_batch_size
    replace_by_mounts(resolved)
    downloads = build_download_steps(spec)
    if objects := build_object_step(spec):
        given = len(spec.framework.prepare)
        downloads = [objects, *downloads[: MAX_STEPS - 1 - given]]
        replace_by_files(resolved, find_root(spec))
    resolved["framework"]["prepare"][:0] = [step.model_dump(mode="json", by_alias=True) for step in downloads]
