"""Weight updates during generation: running requests are aborted, and continue from the tokens generated so far.

Generated tokens are never decoded and encoded again. The log-probability of each token is that of the weights that
sampled it (the interruptible rollout of AReaL, arXiv 2505.24298).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition, Event

from torch import Tensor

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import RolloutEngine, Sampling, derive_seed
from rlt_trainer.rollout.weight_sums import Sums


class InterruptibleEngine:
    """A thread-safe RolloutEngine around another one.

    All other methods interrupt generation within one token.
    """

    def __init__(self, engine: RolloutEngine, sampling: Sampling) -> None:
        self._engine = engine
        self._sampling = sampling
        self._free = Condition()
        self._busy = False
        self._waiting = 0
        self._interrupt = Event()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        max_tokens: Sequence[int] | None = None,
        interrupt: Event | None = None,
    ) -> list[Response]:
        """As in RolloutEngine. The responses are complete, regardless of the number of interruptions."""
        assert interrupt is None, "this engine interrupts generation itself"
        sampling = sampling or self._sampling
        limits = max_tokens or [sampling.max_tokens] * len(prompts)
        responses = [Response((), (), finish_reason="abort")] * len(prompts)
        while running := [row for row, response in enumerate(responses) if response.finish_reason == "abort"]:
            with self._exclusive(interruptible=True):
                parts = self._engine.generate(
                    [[*prompts[row], *responses[row].token_ids] for row in running],
                    [derive_seed(seeds[row], len(responses[row].token_ids)) for row in running],
                    sampling,
                    max_tokens=[limits[row] - len(responses[row].token_ids) for row in running],
                    interrupt=self._interrupt,
                )
            for row, part in zip(running, parts, strict=True):
                responses[row] = join_responses(responses[row], part)
        return responses

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine."""
        with self._exclusive():
            return self._engine.log_probs(sequences)

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """As in RolloutEngine."""
        with self._exclusive():
            self._engine.update_weights(weights)

    def sum_weights(self) -> Sums:
        """As in RolloutEngine."""
        with self._exclusive():
            return self._engine.sum_weights()

    def sleep(self) -> None:
        """As in RolloutEngine."""
        with self._exclusive():
            self._engine.sleep()

    def close(self) -> None:
        """As in RolloutEngine."""
        with self._exclusive():
            self._engine.close()

    @contextmanager
    def _exclusive(self, *, interruptible: bool = False) -> Iterator[None]:
        """Hold exclusive access to the engine. A caller that is not interruptible interrupts those that are."""
        with self._free:
            if not interruptible:
                self._waiting += 1
                self._interrupt.set()
            self._free.wait_for(lambda: not self._busy and not (interruptible and self._waiting))
            self._busy = True
            if not interruptible:
                self._waiting -= 1
                if not self._waiting:
                    self._interrupt.clear()
        try:
            yield
        finally:
            with self._free:
                self._busy = False
                self._free.notify_all()


def join_responses(start: Response, rest: Response) -> Response:
    """Join an interrupted response with its continuation, which may be interrupted as well."""
    return replace(
        rest,
        token_ids=start.token_ids + rest.token_ids,
        log_probs=start.log_probs + rest.log_probs,
        chosen=start.chosen + rest.chosen,
    )
