"""Liger's kernels in the trainer."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Edit, Finding
from rlt_api.findings.kinds import replaceable
from rlt_api.spec.accelerators import find_vendor
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import training_group

LIGER = "spec.model.useLiger"
COMPILE = "spec.training.useTorchCompile"


def validate_liger(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """useLiger needs NVIDIA GPUs, for which the trainer's image has the kernels, layers that are not compiled, and text
    alone."""
    if spec.model is None or not spec.model.use_liger:
        return
    accelerator = training_group(spec).accelerator
    if accelerator is None or find_vendor(accelerator.resource_name) != "nvidia":
        given = accelerator.resource_name if accelerator else "CPUs"
        message = f"requires NVIDIA GPUs, and the job trains on {given}"
        yield replaceable(LIGER, True, message, False, rule="liger", involved=("spec.cluster.workers[].accelerator",))
    if spec.training.use_torch_compile:
        message = "cannot be combined with training.useTorchCompile"
        edits: tuple[Edit, ...] = ({LIGER: False}, {COMPILE: False})
        yield Finding(LIGER, "true", message, "use one of them", rule="liger", involved=(COMPILE,), edits=edits)
    if spec.data is not None and spec.data.image_key is not None:
        message = "cannot be combined with data.imageKey"
        yield replaceable(LIGER, True, message, False, rule="liger", involved=("spec.data.imageKey",))


RULES = (validate_liger,)
