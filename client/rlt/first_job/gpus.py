"""Kinds of GPU nodes, for the node pool of a first job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Vendor = Literal["nvidia", "amd"]


@dataclass(frozen=True)
class GpuKind:
    """A GPU, and the usual node with it."""

    product: str
    """Name of the product, for people."""
    memory: str
    """Memory that the driver reports, rounded down to GiB."""
    per_node: int
    """Number of GPUs in the usual node."""
    cpus: int
    """CPUs for each GPU: at most what the clouds' machine types have, without a share for the system."""
    host_memory_gib: int
    """Host memory for each GPU, likewise."""
    vendor: Vendor = "nvidia"

    @property
    def resource(self) -> str:
        """The extended resource of the device plugin."""
        return "amd.com/gpu" if self.vendor == "amd" else "nvidia.com/gpu"


GPUS = {
    "l4": GpuKind("NVIDIA L4", "22Gi", 1, 6, 24),
    "rtx4090": GpuKind("NVIDIA GeForce RTX 4090", "23Gi", 1, 6, 48),
    "l40s": GpuKind("NVIDIA L40S", "44Gi", 8, 10, 80),
    "a100-40gb": GpuKind("NVIDIA A100 40GB", "40Gi", 8, 10, 80),
    "a100": GpuKind("NVIDIA A100 80GB", "80Gi", 8, 10, 128),
    "h100": GpuKind("NVIDIA H100 80GB", "79Gi", 8, 20, 192),
    "h200": GpuKind("NVIDIA H200", "140Gi", 8, 20, 192),
    "b200": GpuKind("NVIDIA B200", "179Gi", 8, 20, 192),
    "mi300x": GpuKind("AMD Instinct MI300X", "191Gi", 8, 10, 192, "amd"),
    "mi325x": GpuKind("AMD Instinct MI325X", "255Gi", 8, 10, 192, "amd"),
}
"""Name for --gpu -> kind. Memory as nvidia-smi and amd-smi report it; CPUs and memory of g2-standard-8, g6e, p4d, p4de,
p5, p5en, p6-b200 and Standard_ND96isr_MI300X_v5, rounded down."""
