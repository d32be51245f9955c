"""Peak FLOP/s of accelerators: dense, bfloat16, from the manufacturers' data sheets."""

from __future__ import annotations

import re

TERA = 1e12
PEAKS = (
    # NVIDIA states the peak with sparsity. The dense peak is half of it.
    (r"GB200", 2500 * TERA, "NVIDIA GB200 NVL72: 180 PFLOPS dense of 72"),
    (r"B200", 2250 * TERA, "NVIDIA HGX B200: 36 PFLOPS with sparsity of 8"),
    (r"H100 PCIe", 756 * TERA, "NVIDIA H100 data sheet: 1,513 TFLOPS with sparsity"),
    (r"H100 NVL", 835 * TERA, "NVIDIA H100 data sheet: 1,671 TFLOPS with sparsity"),
    (r"H100|H200|H800|GH200", 989 * TERA, "NVIDIA H100 and H200 data sheets: 1,979 TFLOPS with sparsity"),
    (r"H20", 148 * TERA, "NVIDIA H20: 148 TFLOPS"),
    (r"A100|A800", 312 * TERA, "NVIDIA A100 data sheet: 312 TFLOPS"),
    (r"L40S", 362 * TERA, "NVIDIA L40S data sheet: 733 TFLOPS with sparsity, 362.05 without"),
    (r"L4", 121 * TERA, "NVIDIA L4 data sheet: 242 TFLOPS with sparsity"),
    (r"MI300X|MI325X", 1307 * TERA, "AMD Instinct MI300X and MI325X data sheets: 1,307.4 TFLOPS"),
    (r"MI350X", 2300 * TERA, "AMD Instinct MI350X data sheet: 2.3 PFLOPS"),
    (r"MI355X", 2500 * TERA, "AMD Instinct MI355X data sheet: 2.5 PFLOPS"),
    (r"MI250X", 191.5 * TERA, "AMD Instinct MI250X data sheet: 383 TFLOPS of two dies, each a separate device"),
)
"""Pattern of torch.cuda.get_device_name, FLOP/s, and the source."""


def find_peak_flops(device_name: str) -> float | None:
    """Return the peak FLOP/s for a name from torch.cuda.get_device_name. None if it is not known.

    It is not known for a slice of a device (MIG): the name does not contain the size of the slice.
    """
    if re.search(r"\bMIG\b", device_name):
        return None
    return next((peak for pattern, peak, _ in PEAKS if re.search(rf"\b({pattern})\b", device_name)), None)
