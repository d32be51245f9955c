"""The model in Hugging Face format at the end of a job of another framework."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_api.frameworks.run import Run
from rlt_api.spec import RLTrainingJobSpec

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
    writes ckpt.output_dir itself. `on_a_worker`: in a Ray job of its own, else without Ray.
    """
    if spec.framework.type == "openrlhf":
        return Export(run.model)
    if spec.framework.type != "verl" or spec.checkpoint.save_freq < 1:
        return None
    backend = "megatron" if MEGATRON in spec.framework.overrides else "fsdp"
    checkpoint, target = f"{run.checkpoints}/global_step_{{step}}/actor", f"{run.directory}/export"
    merger = ["python3", "-m", "verl.model_merger", "merge", "--backend", backend]
    merger += ["--local_dir", checkpoint, "--target_dir", target]
    if spec.model and spec.model.trust_remote_code:
        merger.append("--trust-remote-code")
    return Export(target, (*ON_A_WORKER, *merger) if on_a_worker else tuple(merger))
