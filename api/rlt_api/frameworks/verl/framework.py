"""verl: framework.type verl."""

from __future__ import annotations

from rlt_api.frameworks.command.preflight import build_engine, build_trial
from rlt_api.frameworks.device_rules import validate_devices_given, validate_equal_devices
from rlt_api.frameworks.field_rules import FIELD_RULES
from rlt_api.frameworks.framework_type import FrameworkType
from rlt_api.frameworks.verl import batches, cpus, field_job, override_keys, rules
from rlt_api.frameworks.verl.export import export_at_the_end, export_checkpoint
from rlt_api.frameworks.verl.field_warnings import warn_verl
from rlt_api.frameworks.verl.settings import build_arguments

VERL = FrameworkType(
    name="verl",
    title="verl",
    build_command=build_arguments,
    options=("version", "overrides"),
    rules=(
        *FIELD_RULES,
        *rules.RULES,
        validate_devices_given,
        validate_equal_devices,
        *batches.RULES,
        *override_keys.RULES,
        *field_job.RULES,
        *cpus.RULES,
    ),
    warnings=(warn_verl, cpus.warn_verl_cpus),
    build_engine=build_engine,
    build_trial=build_trial,
    step_folder="global_step_",
    export_at_the_end=export_at_the_end,
    export_checkpoint=export_checkpoint,
)
