"""The memory of large tensors on CPUs."""

from __future__ import annotations

import ctypes
import platform

import torch

M_TRIM_THRESHOLD = -1  # malloc.h
M_MMAP_MAX = -4


def keep_freed_memory(device: torch.device) -> None:
    """Keep freed memory in this process for later tensors, if it computes on CPUs.

    glibc maps each block of more than 32 MiB alone, and unmaps it when it is freed. The kernel then zeroes all pages
    of the next one: a copy of 100 MB takes five times as long. mallopt(3) has both options. Other C libraries are left
    as they are.
    """
    if device.type == "cpu" and platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, -1)
