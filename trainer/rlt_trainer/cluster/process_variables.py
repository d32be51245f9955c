"""The environment variables of an actor's process, which can be older than the actor."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch


def set_variables(variables: Mapping[str, str]) -> None:
    """Set the variables. torch gets OMP_NUM_THREADS as its number of threads: it reads the variable at its import.

    CUDA, HIP and the processes that vLLM starts read the variables that select devices at their first use.
    """
    os.environ.update(variables)
    if "OMP_NUM_THREADS" in variables:
        torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
