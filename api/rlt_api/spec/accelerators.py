"""Accelerators by the extended resource of their device plugin."""

from __future__ import annotations

from typing import Final

GPU_RESOURCES: Final = {"nvidia.com/gpu": "nvidia", "nvidia.com/gpu.shared": "nvidia", "amd.com/gpu": "amd"}
"""Extended resources of whole (or shared) GPUs, by vendor."""
MIG_RESOURCE: Final = "nvidia.com/mig-"
"""Prefix of a MIG slice's resource (strategy mixed): nvidia.com/mig-1g.5gb."""
UNSUPPORTED: Final = {
    "google.com/tpu": "Google TPU",
    "habana.ai/gaudi": "Intel Gaudi",
    "aws.amazon.com/neuron": "AWS Neuron (Trainium, Inferentia)",
    "aws.amazon.com/neuroncore": "AWS Neuron (Trainium, Inferentia)",
    "aws.amazon.com/neurondevice": "AWS Neuron (Trainium, Inferentia)",
    "gpu.intel.com/i915": "Intel GPU",
    "gpu.intel.com/xe": "Intel GPU",
    "huawei.com/Ascend910": "Huawei Ascend",
}
"""Accelerators that rlt does not support."""


def find_vendor(resource: str) -> str | None:
    """Return nvidia or amd; None for other resources."""
    if resource.startswith(MIG_RESOURCE):
        return "nvidia"
    return GPU_RESOURCES.get(resource)


def find_unsupported(resource: str) -> str | None:
    """Return the product of an accelerator that rlt does not support; None for other resources."""
    if resource.startswith("gpu.intel.com/"):
        return "Intel GPU"
    return UNSUPPORTED.get(resource)
