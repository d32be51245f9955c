"""vLLM in several pods: each has the processes of its devices, and the first one the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlt_trainer.cluster.rendezvous import Rendezvous


@dataclass(frozen=True)
class EnginePod:
    """One pod of an engine whose rollout.tensorParallelSize exceeds the devices of a pod."""

    index: int
    count: int
    address: str
    store: Rendezvous
    """Where vLLM's processes meet. The first pod listens before they start."""

    def options(self) -> dict[str, Any]:
        """Return the arguments of vLLM's AsyncEngineArgs (vllm/config/parallel.py, vLLM 0.32)."""
        return {
            "nnodes": self.count,
            "node_rank": self.index,
            "master_addr": self.store.address,
            "master_port": self.store.port,
        }

    def variables(self) -> dict[str, str]:
        """Return the environment variables of vLLM's processes.

        TORCHELASTIC_USE_AGENT_STORE: rank 0 connects to the store, and does not listen at its port itself
        (torch/distributed/rendezvous.py). VLLM_HOST_IP: where the first pod listens for the replies of the others.
        """
        return {"TORCHELASTIC_USE_AGENT_STORE": "True", "VLLM_HOST_IP": self.address}


def run_workers(options: dict[str, Any]) -> None:
    """Run vLLM's workers of this pod, for a scheduler in another one. Returns when one of them has ended."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    config = AsyncEngineArgs(**options).create_engine_config(UsageContext.LLM_CLASS, headless=True)
    executor = MultiprocExecutor(config, monitor_workers=False)
    executor.start_worker_monitor(inline=True)
