"""rlt's trainer: framework.type builtin."""

from __future__ import annotations

from rlt_api.frameworks.builtin.prestart import list_worker_variables
from rlt_api.frameworks.builtin.training_config import build_files
from rlt_api.frameworks.builtin.warnings import warn_vllm_variables
from rlt_api.frameworks.field_rules import FIELD_RULES
from rlt_api.frameworks.framework_type import Export, FrameworkType
from rlt_api.frameworks.run import Run, choose_export_folder
from rlt_api.rules import (
    adapters,
    batches,
    choices,
    distillation,
    experts,
    kept_cache,
    learning,
    liger,
    model_families,
    operations,
    parsers,
    preferences,
    quantization,
    router_replay,
    sandboxes,
    speculation,
    truncated_sampling,
    vision,
)
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY, CONFIG_FILE

CONFIG = f"{CONFIG_DIRECTORY}/{CONFIG_FILE}"


def build_command(spec: RLTrainingJobSpec, run: Run) -> list[str]:
    """Build the command line of the trainer."""
    return ["rlt-trainer", "run", "--config", CONFIG]


def export_checkpoint(spec: RLTrainingJobSpec, run: Run, step: int) -> Export:
    """Build the export of a checkpoint."""
    target = choose_export_folder(run, step)
    checkpoint = f"{run.checkpoints}/step-{step}"
    return Export(target, ("rlt-trainer", "export", "--checkpoint", checkpoint, "--output", target))


BUILTIN = FrameworkType(
    name="builtin",
    title="rlt's trainer",
    build_command=build_command,
    files=(CONFIG_FILE,),
    build_files=build_files,
    list_worker_variables=list_worker_variables,
    reports_progress=True,
    takes_lease=True,
    roles_as_resources=True,
    rules=(
        *FIELD_RULES,
        *choices.BUILTIN_RULES,
        operations.validate_pause_checkpoints,
        *batches.BUILTIN_RULES,
        *adapters.RULES,
        *distillation.RULES,
        *experts.BUILTIN_RULES,
        *learning.BUILTIN_RULES,
        *liger.RULES,
        *model_families.RULES,
        *preferences.RULES,
        *quantization.RULES,
        *router_replay.RULES,
        *parsers.RULES,
        *sandboxes.RULES,
        *kept_cache.RULES,
        *speculation.BUILTIN_RULES,
        *truncated_sampling.RULES,
        *vision.BUILTIN_RULES,
    ),
    warnings=(warn_vllm_variables, truncated_sampling.warn_truncated_sampling),
    trial=("rlt-trainer", "trial", "--config", CONFIG),
    keeps_exactly=True,
    export_checkpoint=export_checkpoint,
    exports_on_a_worker=False,
)
