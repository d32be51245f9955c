"""Router replay: recorded experts for each token of a mixture (algorithm.routerReplay)."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import conflict, superfluous
from rlt_api.rules.head_memory import require_head_memory
from rlt_api.rules.model_shape import model_shape
from rlt_api.spec.job_spec import RLTrainingJobSpec

REPLAY = "spec.algorithm.routerReplay"
BYPASS = "spec.algorithm.rolloutCorrection.bypassMode"
ENGINE = "spec.rollout.engine"
MULTI_TURN = "spec.rollout.multiTurn"
PREFIX_CACHING = "spec.rollout.engineKwargs.enable_prefix_caching"
RULE = "router-replay"


def validate_router_replay(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """routerReplay needs routers. R2 needs the forward pass that bypassMode leaves out."""
    mode = spec.algorithm.router_replay
    if mode == "disabled":
        return
    if spec.model and spec.model.from_seed:
        message = "is for mixtures of experts, and model.fromSeed has one feed-forward network in a layer"
        yield superfluous(REPLAY, mode, message, rule=RULE, involved=("spec.model.fromSeed",))
    correction = spec.algorithm.rollout_correction
    if mode == "R2" and correction and correction.bypass_mode:
        message = "replays the experts of the forward pass that bypassMode leaves out"
        yield conflict(REPLAY, mode, BYPASS, message=message, rule=RULE)


def validate_engine_routes(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """routerReplay R3 needs an engine that reports experts: transformers, or vLLM on accelerators with its prefix cache
    (vllm/config/vllm.py, _verify_aux_output_compatibility). Conversations have the experts of no earlier turn."""
    rollout = spec.rollout
    if spec.algorithm.router_replay != "R3":
        return
    if rollout.multi_turn is not None:
        message = "replays the experts of one request, and a conversation has several"
        yield conflict(REPLAY, "R3", MULTI_TURN, message=message, rule=RULE)
    if rollout.engine != "vllm":
        return
    involved = (ENGINE, "spec.cluster.workers")
    if all(group.accelerator is None for group in spec.cluster.workers):
        message = "needs the experts of the engine, which vLLM's CPU build does not report"
        fix = "use rollout.engine: transformers, or routerReplay: R2"
        edits = ({ENGINE: "transformers"}, {REPLAY: "R2"})
        yield Finding(REPLAY, "R3", message, fix, rule=RULE, involved=involved, edits=edits)
    elif rollout.engine_kwargs.get("enable_prefix_caching") is False:
        message = "needs vLLM's prefix cache, whose keys its reported experts have"
        yield conflict(REPLAY, "R3", PREFIX_CACHING, message=message, rule=RULE)


def validate_routes_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """head.resources.memory must hold the experts of a step's tokens, which the driver pads to the longest prompt
    and the longest response, and copies into mini-batches. With R3 the responses have them as well."""
    mode = spec.algorithm.router_replay
    shape = model_shape(spec.model) if spec.model else None
    if mode == "disabled" or spec.data is None or shape is None or shape.experts == 1:
        return
    responses = spec.training.train_batch_size * spec.rollout.responses_per_prompt
    length = spec.data.max_prompt_length + spec.data.max_response_length
    experts = shape.layers * shape.experts_per_token
    size = (1 if shape.experts < 256 else 2) * (3 if mode == "R3" else 2)
    what = f"routerReplay: {responses} responses x {length} tokens x {experts} experts in all layers x {size} bytes"
    involved = (REPLAY, "spec.model", "spec.data.maxPromptLength")
    lower = "a lower trainBatchSize"
    yield from require_head_memory(spec, responses * length * experts * size, what, lower=lower, involved=involved)


RULES = (validate_router_replay, validate_engine_routes, validate_routes_memory)
