"""The model in Hugging Face format: at the end of another framework's job, and from one checkpoint of any job."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from rlt_api.frameworks.roll.values import get_block, read_overrides
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import read_strategy

ON_A_WORKER = ("ray", "job", "submit", "--entrypoint-num-gpus", "1", "--")
"""A Ray job on a pod with accelerators, which also has the memory for the weights: the head may be small."""
MEGATRON = "model_engine=megatron"
"""The override that selects Megatron in verl 0.9."""


@dataclass(frozen=True)
class Export:
    """The model and the program that writes it."""

    directory: str
    """Folder of the model in the pods."""
    command: tuple[str, ...] = ()
    """The program, in which {step} stands for the step of the latest checkpoint. Empty if the framework writes the
    model itself."""


def build_export(spec: RLTrainingJobSpec, run: Run, *, on_a_worker: bool = True) -> Export | None:
    """Build the export of a job. None if no checkpoint is saved.

    verl: its model merger (verl/model_merger, the same arguments in 0.5.0 and 0.9.1), which writes bfloat16. OpenRLHF
    writes ckpt.output_dir itself. `on_a_worker`: in its own Ray job, else without Ray.
    """
    if spec.framework.type == "openrlhf":
        return Export(run.model)
    if spec.framework.type != "verl" or spec.checkpoint.save_freq < 1:
        return None
    target = f"{run.directory}/export"
    merger = _build_merger(spec, run, "{step}", target)
    return Export(target, (*ON_A_WORKER, *merger) if on_a_worker else merger)


def build_checkpoint_export(spec: RLTrainingJobSpec, run: Run, step: int) -> Export | None:
    """Build the export of the checkpoint at `step`, for a pod outside of the Ray cluster. None for framework command.

    The command is empty if the framework itself writes models in the Hugging Face format: OpenRLHF at the end of the
    training, ROLL with FSDP2 in each checkpoint.
    """
    target = f"{run.directory}/exports/step-{step}"
    match spec.framework.type:
        case "builtin":
            checkpoint = f"{run.checkpoints}/step-{step}"
            return Export(target, ("rlt-trainer", "export", "--checkpoint", checkpoint, "--output", target))
        case "verl":
            return Export(target, _build_merger(spec, run, str(step), target))
        case "openrlhf":
            return Export(run.model)
        case "roll":
            return _build_roll_export(spec, run, step, target)
        case _:
            return None


def _build_merger(spec: RLTrainingJobSpec, run: Run, step: str, target: str) -> tuple[str, ...]:
    """Build the command line of verl's model merger."""
    backend = "megatron" if MEGATRON in spec.framework.overrides else "fsdp"
    checkpoint = f"{run.checkpoints}/global_step_{step}/actor"
    merger = ["python3", "-m", "verl.model_merger", "merge", "--backend", backend]
    merger += ["--local_dir", checkpoint, "--target_dir", target]
    if spec.model and spec.model.trust_remote_code:
        merger.append("--trust-remote-code")
    return tuple(merger)


def _build_roll_export(spec: RLTrainingJobSpec, run: Run, step: int, target: str) -> Export:
    """Build the command line of ROLL's converter for the latest attempt with the checkpoint.

    ROLL counts steps from 0, and a folder with the time of its start contains the checkpoints of an attempt
    (rlt_pod/command/checkpoints.py).
    """
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
