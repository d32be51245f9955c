"""Liger's kernels in the trainer."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, use
from rlt_api.spec.accelerators import find_vendor
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import training_group

LIGER, COMPILE = "spec.model.useLiger", "spec.training.useTorchCompile"


def validate_liger(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """useLiger needs NVIDIA GPUs, for which the trainer's image has the kernels, layers that are not compiled, and text
    alone."""
    if spec.framework.type != "builtin" or spec.model is None or not spec.model.use_liger:
        return
    accelerator, edits = training_group(spec).accelerator, use(LIGER, False)
    if accelerator is None or find_vendor(accelerator.resource_name) != "nvidia":
        given = accelerator.resource_name if accelerator else "CPUs"
        field, message = "spec.cluster.workers[].accelerator", f"requires NVIDIA GPUs, and the job trains on {given}"
        yield Finding(LIGER, "true", message, "use false", "liger", (field,), edits)
    if spec.training.use_torch_compile:
        message, either = "cannot be combined with training.useTorchCompile", (*edits, *use(COMPILE, False))
        yield Finding(LIGER, "true", message, "use one of them", "liger", (COMPILE,), either)
    if spec.data is not None and spec.data.image_key is not None:
        message = "cannot be combined with data.imageKey"
        yield Finding(LIGER, "true", message, "use false", "liger", ("spec.data.imageKey",), edits)


RULES = (validate_liger,)
