"""The model in Hugging Face format of a job with framework roll: its checkpoints with FSDP2, or its converter."""

from __future__ import annotations

import shlex

from rlt_api.frameworks.framework_type import Export
from rlt_api.frameworks.roll.values import get_block, read_overrides
from rlt_api.frameworks.run import Run, choose_export_folder
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import read_strategy


def export_checkpoint(spec: RLTrainingJobSpec, run: Run, step: int) -> Export:
    """Build the command line of ROLL's converter for the latest attempt with the checkpoint.

    ROLL counts steps from 0, and a folder with the time of its start contains the checkpoints of an attempt
    (rlt_pod/command/checkpoints.py).
    """
    target = choose_export_folder(run, step)
    attempts = f"{run.checkpoints}/*"
    name = f"checkpoint-{step - 1}"
    strategy, _ = read_strategy(get_block(read_overrides(spec.framework.overrides), "actor_train"))
    if not strategy.startswith("megatron"):
        return Export(f"{attempts}/{name}")
    script = (
        f"for folder in {shlex.quote(run.checkpoints)}/*/{name}; do :; done; "
        f'[ -d "$folder" ] || {{ echo "$folder: no such checkpoint" >&2; exit 1; }}; '
        f'exec python3 mcore_adapter/tools/convert.py --checkpoint_path "$folder" --output_path {shlex.quote(target)}'
    )
    return Export(target, ("/bin/sh", "-c", script))
