"""ROLL's RLVR pipeline: framework.type roll."""

from __future__ import annotations

from rlt_api.frameworks.device_rules import validate_devices_given
from rlt_api.frameworks.field_rules import FIELD_RULES
from rlt_api.frameworks.framework_type import FrameworkType
from rlt_api.frameworks.roll import batches, rules
from rlt_api.frameworks.roll.export import export_checkpoint
from rlt_api.frameworks.roll.field_warnings import warn_roll
from rlt_api.frameworks.roll.settings import (
    CONFIG_FILE,
    build_arguments,
    build_config,
    dump_config,
    get_directory,
    list_python_paths,
)
from rlt_api.frameworks.roll.trial import STARTS, build_engine, build_trial, dump_trial_configs
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec


def build_files(spec: RLTrainingJobSpec, run: Run) -> dict[str, str]:
    """Build the file of the config."""
    return {CONFIG_FILE: dump_config(spec, run)}


def list_variables(spec: RLTrainingJobSpec) -> dict[str, str]:
    """List the variables of the pods: where models come from, and the folders with Python code."""
    return {"MODEL_DOWNLOAD_TYPE": "HUGGINGFACE_HUB", "PYTHONPATH": ":".join(list_python_paths(spec))}


def count_steps(spec: RLTrainingJobSpec) -> int | None:
    """Return the number of steps, which ROLL does not print."""
    return spec.training.total_steps


ROLL = FrameworkType(
    name="roll",
    title="ROLL",
    build_command=build_arguments,
    files=(CONFIG_FILE,),
    build_files=build_files,
    build_config=build_config,
    list_variables=list_variables,
    find_working_directory=get_directory,
    count_steps=count_steps,
    options=("workingDirectory", "overrides"),
    rules=(*FIELD_RULES, *rules.RULES, validate_devices_given, *batches.RULES),
    warnings=(warn_roll,),
    build_engine=build_engine,
    build_trial=build_trial,
    trial_files=tuple(STARTS),
    build_trial_files=dump_trial_configs,
    step_folder="checkpoint-",
    export_checkpoint=export_checkpoint,
)
