"""Warnings about a job with framework verl: fields without an effect, and overrides."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import printable
from rlt_api.frameworks.arguments import Argument, parse_overrides
from rlt_api.frameworks.mapping import find, load_mapping
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.unused_fields import Unused, describe_replacement, find_timeout, warn_unused
from rlt_api.frameworks.verl.overrides import format_value
from rlt_api.frameworks.verl.rules import OVERRIDES, PODS
from rlt_api.frameworks.verl.settings import is_old, list_settings
from rlt_api.spec.job_spec import RLTrainingJobSpec


def warn_verl(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about fields and overrides."""
    if spec.model is None or spec.data is None:
        return
    yield from warn_unused(spec, _list_unused)
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
        return describe_replacement(find(argument.key, load_mapping().verl))
    return None  # an unknown key is an error


def _list_unused(spec: RLTrainingJobSpec) -> Iterator[Unused]:
    if is_old(spec.framework):
        yield *find_timeout(spec), "version 0.5 has it for Megatron alone"
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        old = is_old(spec.framework) and reward.concurrency is not None
        yield f"{field}.concurrency", old, "version 0.5 calls the function for one response at a time"
