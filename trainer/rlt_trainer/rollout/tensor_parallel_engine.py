"""One engine spread over several ranks (rollout.tensorParallelSize), each of which runs a part of it.

vLLM's external launcher: every rank schedules the same requests, so all of them must be given the same ones, in the
same order. That is how verl and TRL do it, too.
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


def tensor_parallel_group(size: int) -> ProcessGroup:
    """The group of `size` neighbouring ranks that this rank belongs to. Collective over all ranks.

    Also tells vLLM's external launcher, by the variables of torchrun, which rank this is. Each process sees its own
    device alone: the local rank is 0.
    """
    os.environ |= {"RANK": str(dist.get_rank()), "WORLD_SIZE": str(dist.get_world_size()), "LOCAL_RANK": "0"}
    group, _ = dist.new_subgroups(size, backend="gloo")  # type: ignore[no-untyped-call]
    assert isinstance(group, ProcessGroup)
    return group


class TensorParallelEngine:
    """This rank's part of an engine. A call of generate is one round, in which all ranks of the group take part.

    A rank with nothing to generate calls it with no prompts, and takes part in the others' rounds until none of them
    has any.
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
        """As in RolloutEngine: the requests of all ranks of the group are generated together."""
        assert interrupt is None, "the ranks of a group would not stop at the same token"
        own = _Requests(prompts, seeds, sampling, max_tokens)
        while True:
            everyone = [own] * dist.get_world_size(self._group)
            dist.all_gather_object(everyone, own, group=self._group)
            asking = [each for each in everyone if each.prompts]
            if not asking:
                return []
            limits = [limit for each in asking for limit in each.max_tokens or ()]
            responses = self._engine.generate(
                [prompt for each in asking for prompt in each.prompts],
                [seed for each in asking for seed in each.seeds],
                asking[0].sampling,
                max_tokens=limits or None,
            )
            if own.prompts:
                before = sum(len(each.prompts) for each in everyone[: dist.get_rank(self._group)])
                return responses[before : before + len(own.prompts)]

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine; all ranks of the group ask for the same."""
        return self._engine.log_probs(sequences)

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """As in RolloutEngine: each rank takes its part of the whole weights."""
        self._engine.update_weights(weights)

    def weight_sums(self) -> Sums:
        """As in RolloutEngine: those of all parts together. What each rank has counts as often."""
        everyone: list[Sums] = [{}] * dist.get_world_size(self._group)
        dist.all_gather_object(everyone, self._engine.weight_sums(), group=self._group)
        return {layer: sum(sums[layer] for sums in everyone) % 2**64 for layer in everyone[0]}

    def sleep(self) -> None:
        """As in RolloutEngine."""
        self._engine.sleep()

    def close(self) -> None:
        """As in RolloutEngine."""
        self._engine.close()


@dataclass(frozen=True)
class _Requests:
    """What one rank asks for. All that ask at a time ask for the same sampling."""

    prompts: Sequence[Sequence[int]]
    seeds: Sequence[int]
    sampling: Sampling | None
    max_tokens: Sequence[int] | None
