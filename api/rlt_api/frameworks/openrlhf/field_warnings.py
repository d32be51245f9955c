"""Warnings about a job with framework openrlhf: fields without an effect, and overrides."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import printable
from rlt_api.frameworks.arguments import parse_value
from rlt_api.frameworks.mapping import find, load_mapping
from rlt_api.frameworks.openrlhf.rules import OVERRIDES, PLACEMENT, validate_openrlhf_fields
from rlt_api.frameworks.openrlhf.settings import list_options
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.unused_fields import Unused, describe_replacement, find_timeout, warn_remote_code, warn_unused
from rlt_api.spec.job_spec import RLTrainingJobSpec


def warn_openrlhf(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about fields and overrides."""
    if spec.model is None or spec.data is None:
        return
    yield from warn_unused(spec, _list_unused)
    yield from warn_remote_code(spec, "OpenRLHF")
    if not next(validate_openrlhf_fields(spec), None):
        yield from _warn_overrides(spec)


def _warn_overrides(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Options that differ from the operator's. Those that it leaves out for lack of a value replace nothing."""
    options = list_options(spec, Run("", "", ""))
    for index, text in enumerate(spec.framework.overrides):
        name, _, value = text.removeprefix("--").partition("=")
        before = options.get(name)
        if before is None or PLACEMENT.match(text):  # an error
            continue
        is_equal = before is True if text == f"--{name}" else parse_value(value) == parse_value(str(before))
        if not is_equal:
            problem = describe_replacement(find(name, load_mapping().openrlhf))
            yield f"{OVERRIDES}[{index}]: {printable(text)}: {problem}"


def _list_unused(spec: RLTrainingJobSpec) -> Iterator[Unused]:
    """The timeout, and fields of models other than the policy, which OpenRLHF trains and evaluates like it."""
    yield *find_timeout(spec), "it has no option for it"
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
