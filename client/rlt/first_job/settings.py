"""The settings of a first job: the first ones, from fast to slow, that the validation accepts without a warning
about them.

The memory model is the validation's. Nothing is estimated here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from rlt.first_job.request import NoFirstJobError, Request
from rlt_api.blocks.model import Model
from rlt_api.rules.engine_memory import CACHE_SHARE, cache_share
from rlt_api.rules.model_shape import model_shape
from rlt_api.rules.model_size import model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.unlikely_values import warn_paths_outside_volumes
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

UTILIZATIONS = (0.6, 0.5, 0.4, 0.3, 0.7, 0.8)
"""Values of gpuMemoryUtilization, the preferred ones first."""
OFFLOADED: tuple[Mapping[str, Any], ...] = (
    {},
    {"reference": {"paramOffload": True}},
    {"reference": {"paramOffload": True}, "fsdp": {"optimizerOffload": True}},
    {"reference": {"paramOffload": True}, "fsdp": {"optimizerOffload": True, "paramOffload": True}},
)
"""What is in host memory while it is not used, the fastest first."""


@dataclass(frozen=True)
class Fitted:
    """A job's spec as written, and with its runtime and all defaults."""

    spec: dict[str, Any]
    resolved: RLTrainingJobSpec


def fit_job(request: Request, draft: Mapping[str, Any], runtime: Mapping[str, Any]) -> Fitted:
    """Add settings to the blocks training and rollout of `draft`. Raises NoFirstJobError with the last reason: of the
    settings that need least memory."""
    problem = ""
    for candidate in _list_candidates(request, draft):
        spec = {**draft, **{name: {**draft[name], **values} for name, values in candidate.items()}}
        validated = validate_job("first", spec, runtime)
        found = [str(each) for each in validated.findings]
        if validated.spec is not None and not found:
            _require_size(request, validated.spec)
            paths = set(warn_paths_outside_volumes(validated.spec))  # a matter of the image, not of the settings
            found = [each for each in find_warnings(validated.spec) if each not in paths]
            if not found and (cache_share(validated.spec) or 0) >= CACHE_SHARE:
                return Fitted(spec, validated.spec)
        of_trainer = [str(each) for each in validated.findings if each.rule == "accelerator-memory"]
        problem = next(iter(of_trainer), problem or next(iter(found), ""))
    raise NoFirstJobError(f"{_describe(request)}: no settings fit: {problem}")


def _require_size(request: Request, spec: RLTrainingJobSpec) -> None:
    if spec.model is None or model_size(spec.model) is None:
        raise NoFirstJobError(
            f"{request.model}: the name does not contain the number of parameters: give it with --parameters, such as "
            "--parameters 7B"
        )


def _list_candidates(request: Request, draft: Mapping[str, Any]) -> Iterator[dict[str, dict[str, Any]]]:
    """The settings from fast to slow: what is offloaded, the tokens of a micro-batch, the workers that split experts,
    the devices of an engine and its share of them."""
    count = request.gpus_of_a_node
    divisors = [size for size in range(1, count + 1) if count % size == 0]
    shape = model_shape(Model(path=request.model))
    has_experts = shape is not None and shape.experts > 1 and not request.lora
    experts_split = [*reversed(divisors)] if has_experts else [1]
    longest = draft["data"]["maxPromptLength"] + draft["data"]["maxResponseLength"]
    for offloaded, tokens, experts, parallel, share in product(
        OFFLOADED, (None, longest), experts_split, divisors, UTILIZATIONS
    ):
        training = {**offloaded}
        if tokens:
            training["ppoMaxTokenLenPerDevice"] = tokens
        if experts > 1:
            training["expertParallelSize"] = experts
        rollout: dict[str, Any] = {"gpuMemoryUtilization": share}
        if parallel > 1:
            rollout["tensorParallelSize"] = parallel
        yield {"training": training, "rollout": rollout}


def _describe(request: Request) -> str:
    adapters = " with adapters" if request.lora else ""
    nodes = f"{request.nodes} node{'s' * (request.nodes > 1)} with {request.gpus_of_a_node} x {request.kind.product}"
    return f"{request.model}{adapters} on {nodes}"
