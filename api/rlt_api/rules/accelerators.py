"""The accelerators of the worker groups. The operator would hold a job with others (docs/networking.md, Rejections)."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import misspelled
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.spec.accelerators import GPU_RESOURCES, find_unsupported, find_vendor
from rlt_api.spec.job_spec import RLTrainingJobSpec

SUPPORTED = "nvidia.com/gpu, nvidia.com/mig-... or amd.com/gpu"


def validate_accelerators(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """accelerator.resourceName must be a GPU of NVIDIA or AMD, of the same vendor in all worker groups: one process
    group cannot span NCCL and RCCL."""
    vendors: dict[str, str] = {}
    for index, group in enumerate(spec.cluster.workers):
        if group.accelerator is None:
            continue
        name = group.accelerator.resource_name
        field = f"spec.cluster.workers[{index}].accelerator.resourceName"
        vendor = find_vendor(name)
        if vendor is None:
            product = find_unsupported(name)
            message = f"is {product}, which is not supported" if product else "is not a supported accelerator"
            meant = find_nearest_word(name, GPU_RESOURCES, max_distance=2)
            yield misspelled(field, name, message, meant, otherwise=f"use {SUPPORTED}", rule="accelerator")
            continue
        other = next((path for path, known in vendors.items() if known != vendor), None)
        if other:
            message = f"is of {vendor}, and {other} of {vendors[other]}: one process group cannot span NCCL and RCCL"
            fix = "use accelerators of one vendor in all groups"
            yield Finding(field, name, message, fix, rule="accelerator", involved=(other,))
        vendors[field] = vendor


RULES = (validate_accelerators,)
