"""The processes of an engine in its further pods (rollout.tensorParallelSize above the devices of a pod)."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.cluster.actors import kill, results, submit, wait
from rlt_trainer.cluster.process_variables import set_variables
from rlt_trainer.cluster.rendezvous import Rendezvous, listen_for_ranks, node_address, use_interface_of
from rlt_trainer.cluster.stack_signal import write_stacks_on_signal
from rlt_trainer.policy.model_files import prepare_model_files
from rlt_trainer.rollout.build_engine import build_vllm
from rlt_trainer.rollout.vllm_pods import EnginePod

_log = logging.getLogger(__name__)


class EnginePart:
    """A Ray actor in one of the further pods. The engine's RolloutWorker owns it, and Ray ends it with its owner."""

    def __init__(self, config: TrainingConfig, *, variables: Mapping[str, str]) -> None:
        """`variables`: as in start_actor."""
        set_variables(variables)
        self._config = config
        self._address = node_address()
        use_interface_of(self._address)
        write_stacks_on_signal()

    def node_address(self) -> str:
        """Return the address of this pod."""
        return self._address

    def run(self, pod: EnginePod) -> None:
        """Run the workers of this pod. Returns when one of them has ended. Raises ValueError or an error of vLLM."""
        with tempfile.TemporaryDirectory(prefix="rlt-model-") as folder:
            files = prepare_model_files(self._config.model, Path(folder))
            build_vllm(self._config, files=files, pod=pod).run_workers()


class EngineParts:
    """The further pods of an engine, seen from the process with its scheduler."""

    def __init__(self, starts: Sequence[Callable[[], Any]]) -> None:
        """`starts`: each starts the actor of an EnginePart."""
        self._actors = [start() for start in starts]
        self._is_closed = False

    async def start(self, address: str) -> EnginePod:
        """Start the workers of all pods. Return the first pod, which has this `address`.

        The workers wait for the workers of the first pod. If one of them ends, this process ends as well: vLLM's
        scheduler would wait for its reply.
        """
        self._store = listen_for_ranks(address)
        others = await asyncio.gather(*[submit(actor, EnginePart.node_address) for actor in self._actors])
        self.addresses = [address, *others]
        count = len(self.addresses)
        store = Rendezvous(address, self._store.port)
        first, *pods = [EnginePod(index, count, each, store) for index, each in enumerate(self.addresses)]
        running = [submit(actor, EnginePart.run, pod) for actor, pod in zip(self._actors, pods, strict=True)]
        threading.Thread(target=self._end_with, args=(running,), name="end-with-parts", daemon=True).start()
        return first

    def close(self) -> None:
        """End the actors. Their workers end with them."""
        self._is_closed = True
        for actor in self._actors:
            kill(actor)

    def _end_with(self, running: list[Any]) -> None:
        (ended, *_), _ = wait(running)
        if self._is_closed:
            return
        try:
            results([ended])
            reason = "a process of vLLM has ended"
        except Exception as error:
            reason = str(error)
        _log.error("the part of the engine at %s has ended: %s", self.addresses[1 + running.index(ended)], reason)
        logging.shutdown()
        os._exit(1)
