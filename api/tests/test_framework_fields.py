"""Every field of a job reaches another framework, or is named."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import openrlhf_jobs
import pytest
import roll_jobs
import verl_jobs

from rlt_api.frameworks.openrlhf import settings as openrlhf
from rlt_api.frameworks.openrlhf.rules import validate_openrlhf_fields
from rlt_api.frameworks.roll import settings as roll
from rlt_api.frameworks.roll.rules import validate_roll_fields
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.verl import settings as verl
from rlt_api.frameworks.verl.rules import validate_verl_fields
from rlt_api.schema.model_schema import Schema, walk_leaves
from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import TRAINING_BLOCKS
from rlt_api.validation.warnings import find_warnings


def list_roll_effects(spec: RLTrainingJobSpec, run: Run) -> Any:
    """ROLL's config, and where it finds classes."""
    return roll.list_settings(spec, run), roll.list_python_paths(spec)


FRAMEWORKS: Mapping[str, Any] = {
    "verl": (verl_jobs.COMPLETE, validate_verl_fields, verl.list_settings),
    "openrlhf": (openrlhf_jobs.COMPLETE, validate_openrlhf_fields, openrlhf.list_options),
    "roll": (roll_jobs.COMPLETE, validate_roll_fields, list_roll_effects),
}
"""Framework -> a job with every supported block, the rule for unsupported fields, and the function of its settings."""
NO_COUNTERPART = {
    "spec.model.parameters": "the memory estimate of the validation",
    "spec.training.reference.fsdpSize": "must equal fsdp.fsdpSize",
    "spec.rollout.workerGroup": "only for mode separate",
    "spec.algorithm.rolloutCorrection.rejectionThreshold": "only with rejection",
    "spec.checkpoint.resumeFromPath": "tested with resume: path",
    "spec.evaluation[].name": "only rlt's trainer has it in its metrics",
    "spec.checkpoint.resumeFromJob": "the operator replaces it by resumeFromPath",
}
REJECTED: Mapping[str, Any] = {
    "spec.model.fromSeed": {},
    "spec.data.hub": {"name": "openai/gsm8k"},
    "spec.data.inline": [{"prompt": "1+1", "answer": "2"}],
    "spec.data.filters": [{"column": "level", "values": ["5"]}],
    "spec.data.curriculum": {"column": "level"},
    "spec.data.mixture": [{"source": "a", "weight": 2}],
    "spec.rewards[].env": [{"name": "A", "value": "b"}],
    "spec.rewards[].judge": {"baseUrl": "http://judge", "model": "m"},
    "spec.evaluation[].data.hub": {"name": "openai/gsm8k"},
    "spec.evaluation[].data.filters": [{"column": "level", "values": ["5"]}],
    "spec.evaluation[].promoteIf": {"minimum": 0.5},
    "spec.algorithm.advantageFunction": {"name": "a:b"},
    "spec.algorithm.policyLossFunction": {"name": "a:b"},
    "spec.algorithm.distillation": {"modelPath": "/models/teacher"},
    "spec.algorithm.dpo": {},
    "spec.training.warmup": {"steps": 1},
    "spec.rollout.multiTurn": {"environment": "calculator"},
}
"""Blocks that verl does not support -> an example."""
SUPPORTED = {
    ("openrlhf", "spec.data.hub"),
    ("openrlhf", "spec.evaluation[].data.hub"),
    ("roll", "spec.rollout.staleness"),
}
"""The fields above that another framework supports."""
REJECTED_BLOCKS = {("roll", "spec.algorithm.overlongBuffer.penaltyFactor")}
"""Framework and field of a rejected block that needs other fields."""
SAMPLES: Mapping[str, Any] = {
    "spec.data.path": None,
    "spec.evaluation[].data.path": None,
    "spec.rollout.engineKwargs": {"a": 1},
    "spec.rewards[].options": {"a": 1},
    "spec.rewards[].function.name": "a:b",
    "spec.training.betas": [0.8, 0.9],
}
"""Field -> a value to try, where the schema does not determine one. None: the field has an error of another rule."""


def try_values(schema: Schema) -> Iterator[Any]:
    """Yield values of a field that may differ from its default."""
    kind = schema.get("type") or next((each.get("type") for each in schema.get("anyOf", ())), None)
    if "enum" in schema:
        yield from schema["enum"]
    elif kind == "boolean":
        yield from (True, False)
    elif kind in ("integer", "number"):
        low = schema.get("minimum", 0)
        high = schema.get("maximum", 1e9)
        yield from (value for value in (2, 3, 0.25, 0.75, 1.5) if low <= value <= high)
    else:
        yield "x"
        yield ["x"]


def place(framework: str, path: str, value: Any) -> dict[str, Any]:
    """The complete job with the value at a path; [] is the first item."""
    spec: Any = copy.deepcopy(FRAMEWORKS[framework][0])
    node = spec
    *way, last = path.split(".")[1:]
    for part in way:
        name = part.removesuffix("[]")
        node = node.setdefault(name, [{}] if part.endswith("[]") else {})
        if part.endswith("[]"):
            node[0:] = node or [{}]
            node = node[0]
    node[last] = value
    return dict(spec)


def read_effects(framework: str, spec: Any) -> tuple[Any, list[str], list[str]]:
    """Return the settings, the rejected fields, and the fields with warnings."""
    _, validate, list_settings = FRAMEWORKS[framework]
    parsed = RLTrainingJobSpec.model_validate(add_accelerator_defaults(spec), by_alias=True, by_name=False)
    rejected = [each.field for each in validate(parsed)]
    settings = None if rejected else list_settings(parsed, verl_jobs.RUN)
    return settings, rejected, [each.partition(":")[0] for each in find_warnings(parsed)]


FIELDS = [
    (path, schema)
    for path, schema in walk_leaves(RLTrainingJobSpec)
    if path.split(".")[1].removesuffix("[]") in TRAINING_BLOCKS
    and "const" not in schema
    and path not in NO_COUNTERPART
    and SAMPLES.get(path, "") is not None
    and not path.startswith(tuple(REJECTED))
]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("path", REJECTED)
def test_block_is_rejected(framework: str, path: str) -> None:
    _, rejected, _ = read_effects(framework, place(framework, path, REJECTED[path]))
    assert (framework, path) in SUPPORTED or path.replace("[]", "[0]") in rejected


@pytest.mark.parametrize(
    ("framework", "path", "schema"),
    [(name, path, schema) for path, schema in FIELDS for name in FRAMEWORKS if (name, path) not in REJECTED_BLOCKS],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_field_reaches_the_framework_or_is_named(framework: str, path: str, schema: Schema) -> None:
    """A change of any field changes the settings, or the field or its block is rejected or warned about."""
    before = read_effects(framework, FRAMEWORKS[framework][0])
    assert before[1] == []
    values = [SAMPLES[path]] if path in SAMPLES else try_values(schema)
    effects = []
    for value in values:
        try:
            effects.append(read_effects(framework, place(framework, path, value)))
        except ValueError:
            continue
    assert effects, "no value is valid"
    assert any(each != before for each in effects)
