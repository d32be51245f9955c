"""OpenRLHF: framework.type openrlhf."""

from __future__ import annotations

from rlt_api.frameworks.command.preflight import build_engine, build_trial
from rlt_api.frameworks.device_rules import validate_devices_given, validate_equal_devices
from rlt_api.frameworks.field_rules import FIELD_RULES
from rlt_api.frameworks.framework_type import Export, FrameworkType
from rlt_api.frameworks.openrlhf import batches, rules
from rlt_api.frameworks.openrlhf.field_warnings import warn_openrlhf
from rlt_api.frameworks.openrlhf.settings import build_arguments
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec


def export_at_the_end(spec: RLTrainingJobSpec, run: Run, on_a_worker: bool) -> Export:
    """Return the model that OpenRLHF itself writes to ckpt.output_dir."""
    return Export(run.model)


def export_checkpoint(spec: RLTrainingJobSpec, run: Run, step: int) -> Export:
    """Return the same model: OpenRLHF has no program that exports a checkpoint."""
    return Export(run.model)


OPENRLHF = FrameworkType(
    name="openrlhf",
    title="OpenRLHF",
    build_command=build_arguments,
    options=("overrides",),
    rules=(*FIELD_RULES, *rules.RULES, validate_devices_given, validate_equal_devices, *batches.RULES),
    warnings=(warn_openrlhf,),
    build_engine=build_engine,
    build_trial=build_trial,
    export_at_the_end=export_at_the_end,
    export_checkpoint=export_checkpoint,
)
