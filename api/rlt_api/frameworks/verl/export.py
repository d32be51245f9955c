"""The model in Hugging Face format of a job with framework verl: its model merger.

verl/model_merger has the same arguments in 0.5.0 and 0.9.1, and writes bfloat16.
"""

from __future__ import annotations

from rlt_api.frameworks.framework_type import Export
from rlt_api.frameworks.run import Run, choose_export_folder
from rlt_api.spec.job_spec import RLTrainingJobSpec

ON_A_WORKER = ("ray", "job", "submit", "--entrypoint-num-gpus", "1", "--")
"""A Ray job on a pod with accelerators, which also has the memory for the weights: the head may be small."""
MEGATRON = "model_engine=megatron"
"""The override that selects Megatron in verl 0.9."""


def export_at_the_end(spec: RLTrainingJobSpec, run: Run, on_a_worker: bool) -> Export | None:
    """Build the export after the training. None if no checkpoint is saved."""
    if spec.checkpoint.save_freq < 1:
        return None
    target = f"{run.directory}/export"
    merger = _build_merger(spec, run, "{step}", target)
    return Export(target, (*ON_A_WORKER, *merger) if on_a_worker else merger)


def export_checkpoint(spec: RLTrainingJobSpec, run: Run, step: int) -> Export:
    """Build the export of a checkpoint."""
    target = choose_export_folder(run, step)
    return Export(target, _build_merger(spec, run, str(step), target))


def _build_merger(spec: RLTrainingJobSpec, run: Run, step: str, target: str) -> tuple[str, ...]:
    """Build the command line of verl's model merger."""
    backend = "megatron" if MEGATRON in spec.framework.overrides else "fsdp"
    checkpoint = f"{run.checkpoints}/global_step_{step}/actor"
    merger = ["python3", "-m", "verl.model_merger", "merge", "--backend", backend]
    merger += ["--local_dir", checkpoint, "--target_dir", target]
    if spec.model and spec.model.trust_remote_code:
        merger.append("--trust-remote-code")
    return tuple(merger)
