"""Tensor parallelism: one engine on several ranks (rollout.tensorParallelSize).

With vLLM's external launcher every rank schedules the same requests, so all ranks must submit the same requests in the
same order. verl and TRL do the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import RolloutEngine, Sampling
from rlt_trainer.rollout.weight_sums import Sums


def create_tensor_parallel_group(size: int) -> ProcessGroup:
    """Create the group of `size` consecutive ranks that contains this rank. Collective over all ranks.

    Sets torchrun's environment variables for vLLM's external launcher. The local rank is 0, because each process sees
    only its own device.
    """
    os.environ |= {"RANK": str(dist.get_rank()), "WORLD_SIZE": str(dist.get_world_size()), "LOCAL_RANK": "0"}
    group, _ = dist.new_subgroups(size, backend="gloo")  # type: ignore[no-untyped-call]
    assert isinstance(group, ProcessGroup)
    return group


class TensorParallelEngine:
    """This rank's part of an engine. Each call of generate is one round of all ranks of the group.

    A rank without prompts calls generate with none, and takes part in rounds until no rank has prompts.
    """

    def __init__(self, engine: RolloutEngine, group: ProcessGroup) -> None:
        self._engine = engine
        self._group = group

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        max_tokens: Sequence[int] | None = None,
        interrupt: Event | None = None,
    ) -> list[Response]:
        """As in RolloutEngine. The group generates the responses to the requests of all its ranks together."""
        assert interrupt is None, "interruption would stop the ranks of the group at different tokens"
        own = _Requests(prompts, seeds, sampling, max_tokens)
        while True:
            by_rank = [own] * dist.get_world_size(self._group)
            dist.all_gather_object(by_rank, own, group=self._group)
            requests = [each for each in by_rank if each.prompts]
            if not requests:
                return []
            limits = [limit for each in requests for limit in each.max_tokens or ()]
            responses = self._engine.generate(
                [prompt for each in requests for prompt in each.prompts],
                [seed for each in requests for seed in each.seeds],
                requests[0].sampling,
                max_tokens=limits or None,
            )
            if own.prompts:
                before = sum(len(each.prompts) for each in by_rank[: dist.get_rank(self._group)])
                return responses[before : before + len(own.prompts)]

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine. All ranks of the group must pass the same sequences."""
        return self._engine.log_probs(sequences)

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """As in RolloutEngine. Each rank loads its part of the full weights."""
        self._engine.update_weights(weights)

    def sum_weights(self) -> Sums:
        """As in RolloutEngine, added over all ranks. Replicated weights count once for each rank."""
        by_rank: list[Sums] = [{}] * dist.get_world_size(self._group)
        dist.all_gather_object(by_rank, self._engine.sum_weights(), group=self._group)
        return {layer: sum(sums[layer] for sums in by_rank) % 2**64 for layer in by_rank[0]}

    def sleep(self) -> None:
        """As in RolloutEngine."""
        self._engine.sleep()

    def close(self) -> None:
        """As in RolloutEngine."""
        self._engine.close()


@dataclass(frozen=True)
class _Requests:
    """The requests of one rank. All ranks of a round use the same sampling."""

    prompts: Sequence[Sequence[int]]
    seeds: Sequence[int]
    sampling: Sampling | None
    max_tokens: Sequence[int] | None
