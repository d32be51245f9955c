"""The imports of the actors' processes, which Ray makes when it starts a process (RAY_preload_python_modules).

Nothing may count devices here: CUDA would keep those that it sees, and Ray selects an actor's devices later. The models
of transformers import torchao, which counts them, and vLLM has not been tried.
"""

from __future__ import annotations

import os
from importlib import import_module

from rlt_pod.report.driver_report import NO_PRELOAD

MODULES = ("rlt_trainer.workers.rollout_worker", "rlt_trainer.workers.train_worker")

if NO_PRELOAD not in os.environ:  # as in the process that reads the stacks
    for name in MODULES:
        import_module(name)
