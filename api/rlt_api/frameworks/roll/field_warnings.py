"""Warnings about a job with framework roll: fields without an effect, and overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from rlt_api.findings.finding import printable
from rlt_api.frameworks.arguments import parse_overrides
from rlt_api.frameworks.command.devices import count_devices
from rlt_api.frameworks.mapping import find, find_field, load_mapping
from rlt_api.frameworks.roll.keys import list_problems
from rlt_api.frameworks.roll.rules import OVERRIDES, PODS, validate_roll_fields
from rlt_api.frameworks.roll.settings import build_config, list_settings
from rlt_api.frameworks.roll.values import read_value
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.unused_fields import Unused, warn_remote_code, warn_unused
from rlt_api.frameworks.validation_set import find_suite
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import list_roles, parse_devices, shares_devices_asynchronously

PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,), "number": (int, float), "boolean": (bool,), "string": (str,), "array": (list, str),
    "object": (dict,),
}  # fmt: skip
"""Type of a field -> Python's types of an override's value. A list of one item can be the item."""


def warn_roll(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about fields and overrides."""
    if spec.model is None or spec.data is None:
        return
    yield from warn_unused(spec, _list_unused)
    yield from warn_remote_code(spec, "ROLL")
    if not next(validate_roll_fields(spec), None):
        yield from _warn_overrides(spec)


def _fits(value: JsonValue, field: str) -> bool:
    """Whether a field takes a value of this type. Its values can have other names than the framework's."""
    schema = find_field(field) or {}
    if field == "spec.training.expertParallelSize":  # validate_roll_fields rejects it
        return False
    if field == "spec.data.chatTemplate":
        return "{" in str(value)
    if "enum" in schema:
        return value in schema["enum"]
    types = PYTHON_TYPES.get(str(schema.get("type")), (object,))
    return isinstance(value, types) and (isinstance(value, bool) == (types == (bool,)) or types == (object,))


def _warn_overrides(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Unknown keys, overrides that replace a field, and devices that no role uses."""
    run = Run("", "", "")
    settings = list_settings(spec, run)
    config = build_config(spec, run)
    unknown = {problem.key: problem.message for problem in list_problems(config) if problem.unknown}
    for argument in parse_overrides(spec.framework.overrides):
        before: JsonValue = settings
        for part in argument.key.split("."):
            before = before.get(part) if isinstance(before, dict) else None
        owner = find(argument.key, load_mapping().roll)
        text = f"{OVERRIDES}[{argument.index}]: {printable(f'{argument.key}={argument.value}')}"
        found = next((key for key in unknown if _contains(key, argument.key) or _contains(argument.key, key)), None)
        if found:
            yield f"{text}: {unknown[found] if found == argument.key else f'{found} {unknown[found]}'}"
        elif before not in (None, read_value(argument)) and owner and owner.fields and argument.key not in PODS:
            use = "; use that field" if _fits(read_value(argument), owner.fields[0]) else ""
            yield f"{text}: replaces {owner.fields[0]}{use or f': {owner.note}'.rstrip(': .')}"
    total = count_devices(spec.cluster.workers)
    used = {
        device for role in list_roles(config).values() for device in parse_devices(role.get("device_mapping")) or []
    }
    if len(used) < total:
        yield f"{OVERRIDES}: the roles use {len(used)} of the {total} devices"
    if shares_devices_asynchronously(config):
        yield (
            "spec.rollout.staleness: the engines share devices with the training, so that ROLL does not generate ahead "
            "of it; use rollout.mode: separate"
        )


def _contains(block: str, key: str) -> bool:
    return f"{key}.".startswith(f"{block}.")


def _list_unused(spec: RLTrainingJobSpec) -> Iterator[Unused]:
    """Memory and speed: ROLL moves all models to CPU memory between its phases, and pads with FSDP2."""
    training = spec.training
    model = spec.model
    critic = spec.algorithm.critic
    fsdp = training.fsdp
    reference = training.reference
    suite = find_suite(spec)
    reason = "models are always in CPU memory while they are not used"
    yield "spec.training.fsdp.paramOffload", bool(fsdp and fsdp.param_offload), reason
    yield "spec.training.fsdp.optimizerOffload", bool(fsdp and fsdp.optimizer_offload), reason
    yield "spec.training.reference.paramOffload", bool(reference and reference.param_offload), reason
    yield "spec.rollout.freeCacheEngine", not spec.rollout.free_cache_engine, "the engine always frees its cache"
    yield "spec.model.useRemovePadding", bool(model and not model.use_remove_padding), "with FSDP2 it always pads"
    yield "spec.training.useTorchCompile", training.use_torch_compile, "it does not compile"
    given = training.ppo_max_token_len_per_device is not None
    yield "spec.training.ppoMaxTokenLenPerDevice", given, "with FSDP2 it has fixed micro-batches"
    before = suite is not None and "before_train" in suite.model_fields_set and not suite.before_train
    yield "spec.evaluation[0].beforeTrain", before, "it always validates before the first step"
    if critic:
        field = "spec.algorithm.critic"
        yield f"{field}.paramOffload", critic.param_offload, reason
        yield f"{field}.optimizerOffload", critic.optimizer_offload, reason
        yield f"{field}.useRemovePadding", not critic.use_remove_padding, "with FSDP2 it always pads"
