"""The accelerators of a job with verl, OpenRLHF or ROLL."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import replaceable, required
from rlt_api.rules.unsupported import TYPE
from rlt_api.spec.job_spec import RLTrainingJobSpec

RULE = "framework-devices"
EXAMPLE: JsonValue = {"resourceName": "nvidia.com/gpu", "count": 1}


def validate_devices_given(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type verl, openrlhf and roll need workers with accelerators."""
    for index, group in enumerate(spec.cluster.workers):
        if group.accelerator is None:
            field = f"spec.cluster.workers[{index}].accelerator"
            by = f"framework {spec.framework.type}, which trains on GPUs"
            yield required(field, by, "add it", EXAMPLE, rule=RULE, involved=(TYPE,))


def validate_equal_devices(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type verl and openrlhf need the same number of accelerators in each pod, because they place training
    and engines by the number of devices alone."""
    framework = spec.framework.type
    first = spec.cluster.workers[0].accelerator
    for index, group in enumerate(spec.cluster.workers):
        if group.accelerator and first and group.accelerator.count != first.count:
            count = group.accelerator.count
            message = f"differs from workers[0].accelerator.count {first.count}, and {framework} may mix up the groups"
            field = f"spec.cluster.workers[{index}].accelerator.count"
            yield replaceable(field, count, message, first.count, rule=RULE, involved=(TYPE,))
