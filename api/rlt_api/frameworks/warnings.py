"""Warnings about other frameworks: overrides that replace a field, unknown keys, and fields without an effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue

from rlt_api.blocks.training import Training
from rlt_api.findings.finding import printable
from rlt_api.frameworks.command.devices import count_devices
from rlt_api.frameworks.known_programs import Argument, parse_overrides, parse_value
from rlt_api.frameworks.mapping import Setting, find, find_field, load_mapping
from rlt_api.frameworks.openrlhf.rules import PLACEMENT, validate_openrlhf_fields
from rlt_api.frameworks.openrlhf.settings import list_options
from rlt_api.frameworks.roll.keys import list_problems
from rlt_api.frameworks.roll.rules import PODS as ROLL_PODS
from rlt_api.frameworks.roll.rules import validate_roll_fields
from rlt_api.frameworks.roll.settings import build_config
from rlt_api.frameworks.roll.settings import list_settings as list_roll_settings
from rlt_api.frameworks.roll.values import read_value
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.verl.overrides import format_value
from rlt_api.frameworks.verl.rules import OVERRIDES, PODS
from rlt_api.frameworks.verl.settings import is_old, list_settings
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import list_roles, parse_devices, shares_devices_asynchronously

PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,), "number": (int, float), "boolean": (bool,), "string": (str,), "array": (list, str),
    "object": (dict,),
}  # fmt: skip
"""Type of a field -> Python's types of an override's value. A list of one item can be the item."""


def warn_framework(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about a job with framework.type verl, openrlhf or roll."""
    framework = spec.framework.type
    if framework not in UNUSED or spec.model is None or spec.data is None:
        return
    for field, is_given, reason in [*_list_unused(spec), *UNUSED[framework](spec)]:
        if is_given:
            yield f"{field}: has no effect with framework {framework}: {reason}"
    if framework == "verl":
        yield from _warn_verl(spec)
        return
    if not spec.model.trust_remote_code and not (spec.model.path or "").startswith("/"):
        name = {"openrlhf": "OpenRLHF", "roll": "ROLL"}[framework]
        yield f"spec.model.trustRemoteCode: false: {name} always runs code from the model's repository; use a folder"
    if framework == "openrlhf" and not next(validate_openrlhf_fields(spec), None):
        yield from _warn_openrlhf(spec)
    if framework == "roll" and not next(validate_roll_fields(spec), None):
        yield from _warn_roll(spec)


def _warn_verl(spec: RLTrainingJobSpec) -> Iterator[str]:
    for argument in parse_overrides(spec.framework.overrides):
        if problem := _describe_override(argument, spec):
            text = printable(f"{argument.prefix}{argument.key}={argument.value}")
            yield f"{OVERRIDES}[{argument.index}]: {text}: {problem}"
    if spec.checkpoint.save_freq < 1:
        yield (
            f"spec.checkpoint.saveFreq: {spec.checkpoint.save_freq}: verl saves nothing, also no model at the end; "
            "set it to 1 or more, and the last step is saved"
        )


def _describe_override(argument: Argument, spec: RLTrainingJobSpec) -> str | None:
    settings = {key.lstrip("+"): value for key, value in list_settings(spec, Run("", "", "")).items()}
    if argument.key in PODS:  # an error if it differs
        return None
    if argument.key == "trainer.total_epochs" and spec.training.total_steps:  # verl ends at the first of both
        return None
    if argument.key in settings:
        if argument.value == format_value(settings[argument.key]):
            return None
        return _describe_replacement(find(argument.key, load_mapping().verl))
    return None  # an unknown key is an error


def _describe_replacement(owner: Setting | None) -> str:
    return (
        f"replaces {owner.fields[0]}; use that field"
        if owner and owner.fields
        else "replaces the value of the operator"
    )


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


def _warn_openrlhf(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Options that differ from the operator's. Those that it leaves out for lack of a value replace nothing."""
    options = list_options(spec, Run("", "", ""))
    for index, text in enumerate(spec.framework.overrides):
        name, _, value = text.removeprefix("--").partition("=")
        before = options.get(name)
        if before is None or PLACEMENT.match(text):  # an error
            continue
        is_equal = before is True if text == f"--{name}" else parse_value(value) == parse_value(str(before))
        if not is_equal:
            problem = _describe_replacement(find(name, load_mapping().openrlhf))
            yield f"{OVERRIDES}[{index}]: {printable(text)}: {problem}"


def _list_unused(spec: RLTrainingJobSpec) -> Iterator[tuple[str, bool, str]]:
    """Fields that change safety or speed, not the training."""
    rollout = spec.rollout
    yield "spec.rollout.kvCacheSpace", rollout.kv_cache_space != 1, "it is the cache on a CPU"
    yield "spec.rollout.verifyWeightsFreq", rollout.verify_weights_freq != 1, "it verifies no weight syncs"
    for index, reward in enumerate(spec.rewards):
        limit = reward.function and reward.function.timeout_seconds
        field = f"spec.rewards[{index}]"
        yield f"{field}.function.timeoutSeconds", limit not in (None, 10.0), "it waits for the function"


def _list_unused_by_verl(spec: RLTrainingJobSpec) -> Iterator[tuple[str, bool, str]]:
    if is_old(spec.framework):
        yield *_has_timeout(spec), "version 0.5 has it for Megatron alone"
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        old = is_old(spec.framework) and reward.concurrency is not None
        yield f"{field}.concurrency", old, "version 0.5 calls the function for one response at a time"


def _list_unused_by_openrlhf(spec: RLTrainingJobSpec) -> Iterator[tuple[str, bool, str]]:
    """The timeout, and fields of models other than the policy, which OpenRLHF trains and evaluates like it."""
    yield *_has_timeout(spec), "it has no option for it"
    critic = spec.algorithm.critic
    model = spec.model
    reference = spec.training.reference
    reason = "the critic is trained like the model"
    if critic and model:
        field = "spec.algorithm.critic"
        yield f"{field}.ppoMicroBatchSizePerDevice", critic.ppo_micro_batch_size_per_device is not None, reason
        yield f"{field}.paramOffload", critic.param_offload, "it offloads the optimizer alone"
        yield f"{field}.optimizerOffload", critic.optimizer_offload, reason
        is_other = critic.enable_gradient_checkpointing != model.enable_gradient_checkpointing
        yield f"{field}.enableGradientCheckpointing", is_other, reason
        yield f"{field}.useRemovePadding", critic.use_remove_padding != model.use_remove_padding, reason
    size = reference.log_prob_micro_batch_size_per_device if reference else None
    field = "spec.training.reference.logProbMicroBatchSizePerDevice"
    yield field, size is not None, "training.logProbMicroBatchSizePerDevice is used"


def _warn_roll(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Unknown keys, overrides that replace a field, and devices that no role uses."""
    run = Run("", "", "")
    settings = list_roll_settings(spec, run)
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
        elif before not in (None, read_value(argument)) and owner and owner.fields and argument.key not in ROLL_PODS:
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


def _list_unused_by_roll(spec: RLTrainingJobSpec) -> Iterator[tuple[str, bool, str]]:
    """Memory and speed: ROLL moves all models to CPU memory between its phases, and pads with FSDP2."""
    training = spec.training
    model = spec.model
    critic = spec.algorithm.critic
    fsdp = training.fsdp
    reference = training.reference
    validation = training.validation
    reason = "models are always in CPU memory while they are not used"
    yield "spec.training.fsdp.paramOffload", bool(fsdp and fsdp.param_offload), reason
    yield "spec.training.fsdp.optimizerOffload", bool(fsdp and fsdp.optimizer_offload), reason
    yield "spec.training.reference.paramOffload", bool(reference and reference.param_offload), reason
    yield "spec.rollout.freeCacheEngine", not spec.rollout.free_cache_engine, "the engine always frees its cache"
    yield "spec.model.useRemovePadding", bool(model and not model.use_remove_padding), "with FSDP2 it always pads"
    yield "spec.training.useTorchCompile", training.use_torch_compile, "it does not compile"
    given = training.ppo_max_token_len_per_device is not None
    yield "spec.training.ppoMaxTokenLenPerDevice", given, "with FSDP2 it has fixed micro-batches"
    before = validation is not None and "before_train" in validation.model_fields_set and not validation.before_train
    yield "spec.training.validation.beforeTrain", before, "it always validates before the first step"
    if critic:
        field = "spec.algorithm.critic"
        yield f"{field}.paramOffload", critic.param_offload, reason
        yield f"{field}.optimizerOffload", critic.optimizer_offload, reason
        yield f"{field}.useRemovePadding", not critic.use_remove_padding, "with FSDP2 it always pads"


UNUSED: Mapping[str, Callable[[RLTrainingJobSpec], Iterator[tuple[str, bool, str]]]] = {
    "verl": _list_unused_by_verl,
    "openrlhf": _list_unused_by_openrlhf,
    "roll": _list_unused_by_roll,
}
"""Framework -> path, whether it is given, and reason, of its fields without an effect."""


def _has_timeout(spec: RLTrainingJobSpec) -> tuple[str, bool]:
    default = Training.model_fields["collective_timeout_seconds"].default
    return "spec.training.collectiveTimeoutSeconds", spec.training.collective_timeout_seconds != default
