"""A process on CPUs uses the freed memory of large tensors again."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, torch
from rlt_trainer.host_memory import keep_freed_memory

def fill():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(2**28, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

{call}
fill()
print(fill())
"""
PAGES = 2**28 // 4096


def count_faults(call: str) -> int:
    """Count the pages that the kernel maps for the second tensor of 256 MiB in a new process."""
    program = COUNT_FAULTS.format(call=call)
    return int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def test_the_second_large_tensor_has_the_pages_of_the_first() -> None:
    assert count_faults("keep_freed_memory(torch.device('cpu'))") < PAGES / 100


@pytest.mark.parametrize("call", ["", "keep_freed_memory(torch.device('cuda'))"], ids=["default", "gpu"])
def test_other_processes_keep_the_default(call: str) -> None:
    assert count_faults(call) > PAGES / 100
