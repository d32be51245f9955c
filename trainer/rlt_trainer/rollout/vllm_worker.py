"""The trainer's part of vLLM's worker processes: they receive weights, and end with the process of their engine.

vLLM adds the class to its worker (worker_extension_cls). vLLM's own weight transfer engines (ipc, nccl) support only
CUDA, so that CPUs would take another path, and do not repack weights for the CPU's kernels.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rlt_trainer.rollout.expert_stacks import iterate_experts
from rlt_trainer.rollout.open_receiver import open_receiver
from rlt_trainer.rollout.vllm_adapters import Adapters, build_lora_request
from rlt_trainer.rollout.vllm_expand import replace_expand
from rlt_trainer.rollout.vllm_experts import accept_stacks
from rlt_trainer.rollout.vllm_fp8 import QuantizedLayers, find_quantized_layers
from rlt_trainer.rollout.vllm_layouts import Layouts
from rlt_trainer.rollout.vllm_weights import iterate_weights, pack_experts, pack_shared_weights
from rlt_trainer.rollout.weight_channel import Received, WeightReceiver, parse_address, receive_weights
from rlt_trainer.rollout.weight_sums import UNKNOWN, Summation, Sums

OWNER = "RLT_ENGINE_PROCESS"
"""Environment variable with the pid of the process that started vLLM."""
SHARED_MEMORY = Path("/dev/shm")  # the folder of POSIX shared memory


PackedSums = tuple[list[tuple[str, int]], list[tuple[str, int, int]]]
"""Sums as plain values."""
PackedReceived = tuple[int, list[str]]
"""Received as plain values."""


def unpack_sums(packed: PackedSums) -> Sums:
    """Return the sums of a worker."""
    parts, weights = packed
    return Sums(dict(parts), {name: (value, count) for name, value, count in weights})


def unpack_received(packed: PackedReceived) -> Received:
    """Return what a worker has received."""
    version, damaged = packed
    return Received(version, tuple(damaged))


class WorkerExtension:
    """Methods for AsyncLLM.collective_rpc. Each runs in all workers of the engine, one for each device."""

    if TYPE_CHECKING:  # vLLM's worker
        from vllm.config import VllmConfig
        from vllm.lora.request import LoRARequest

        vllm_config: VllmConfig
        device: torch.device
        rank: int

        def get_model(self) -> nn.Module: ...
        def reload_weights(self, **options: Any) -> None: ...
        def add_lora(self, request: LoRARequest) -> bool: ...

    _weight_channel: WeightReceiver
    _layouts: Layouts | None = None
    """Where the weights of the last sync are. None before the first one, and if vLLM applies adapters itself."""
    _quantized: QuantizedLayers | None = None
    """The layers that were quantized in the last weight sync. None before the first one."""

    def open_weight_channel(self, addresses: Sequence[Mapping[str, Any]]) -> None:
        """Open the channel at the address of this worker's device, given by the fields of its class."""
        self._weight_channel = open_receiver(parse_address(addresses[self.rank]), self.device)

    def load_policy_weights(self) -> PackedReceived:
        """Load the weights from the channel, and return what arrived.

        vLLM loads layer by layer, so that only one layer is in memory twice, and repacks it for the CPU's kernels.
        """
        if self._layouts is None or self._quantized is None:
            self._layouts = Layouts(self.get_model())
            self._quantized = QuantizedLayers(find_quantized_layers(self.get_model()), self._layouts)
        weights = receive_weights(self._weight_channel)
        if self.vllm_config.parallel_config.enable_expert_parallel:  # a device has some experts, and some twice
            weights = iterate_experts(weights)
        stream = self._layouts.follow(weights)
        try:
            self.reload_weights(weights_iterator=stream)
            for _ in stream:  # weights that the model does not load
                pass
        except Exception:
            self._weight_channel.close()  # the sender would wait for this process
            raise
        pack_shared_weights(self.get_model())
        pack_experts(self.get_model())
        return self._pack_received()

    def load_policy_adapters(self, adapters: Mapping[str, Any]) -> PackedReceived:
        """Load adapters from the channel, in place of the earlier ones. `adapters`: the fields of Adapters.

        vLLM reads them from files. Returns what arrived.
        """
        try:
            with TemporaryDirectory(prefix="rlt-adapters-") as folder:
                Adapters(**adapters).write(dict(receive_weights(self._weight_channel)), Path(folder))
                self.add_lora(build_lora_request(folder))
        except Exception:
            self._weight_channel.close()
            raise
        return self._pack_received()

    def _pack_received(self) -> PackedReceived:
        received = self._weight_channel.received
        return received.version, list(received.damaged)

    def sum_policy_weights(self) -> PackedSums:
        """Return the sums over this worker's part of the weights.

        A quantized layer counts with the weights that it was loaded with: `list_wrong_layers` compares the two.
        """
        summation = Summation()
        placed = self._layouts.by_tensor() if self._layouts else {}
        hidden = self._quantized.hidden_parameters() if self._quantized else set()
        for held in iterate_weights(self.get_model()):
            _, layout = placed.get(id(held.parameter), (None, UNKNOWN))
            if held.name not in hidden:
                layout = layout if held.is_ordered else UNKNOWN
                summation.add(held.name, held.values, layout, is_replica=held.is_replica)
        for tensor, layout in placed.values():
            if not isinstance(tensor, nn.Parameter):
                summation.add("", tensor, layout, is_replica=True)
        if self._layouts:
            summation.expect(self._layouts.received)
        if self._quantized:
            self._quantized.add_to(summation)
        sums = summation.read()
        return list(sums.parts.items()), [(name, *each) for name, each in sums.weights.items()]

    def list_wrong_layers(self) -> list[str]:
        """Describe the quantized layers that differ from the weights of the last sync. Empty before the first one."""
        return self._quantized.list_wrong() if self._quantized else []


def end_with_owner(owner: int) -> None:
    """End this process when the process `owner` has ended: vLLM's processes would continue without it."""
    process = os.pidfd_open(owner)

    def wait() -> None:
        select.select([process], [], [])
        _remove_shared_memory()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end-with-owner", daemon=True).start()


def _remove_shared_memory() -> None:
    """Remove the shared memory of this engine's CPU workers, which has a name and outlives them.

    The name contains VLLM_DIST_IDENT (vllm/distributed/device_communicators/cpu_communicator.py).
    """
    if identifier := os.environ.get("VLLM_DIST_IDENT"):
        for file in SHARED_MEMORY.glob(f"*{identifier}*"):
            file.unlink(missing_ok=True)


if owner := os.environ.get(OWNER):  # vLLM imports this module first, and loads a model for minutes afterwards
    end_with_owner(int(owner))
    accept_stacks()
    replace_expand()
