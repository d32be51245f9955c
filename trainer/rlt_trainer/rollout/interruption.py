"""New weights while responses are being generated: what runs is aborted, and goes on from its tokens so far.

Token in, token out: what was generated is never turned into text and back. Each token's log-probability is that of the
weights that drew it (the interruptible rollout of AReaL, arXiv 2505.24298).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition, Event

from torch import Tensor

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import RolloutEngine, Sampling, continuation_seed
from rlt_trainer.rollout.weight_sums import Sums


class InterruptibleEngine:
    """A RolloutEngine around another, whose methods may be called from several threads.

    Generating gives way to everything else within one token.
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
        """As in RolloutEngine; the responses are whole, however often they were interrupted."""
        assert interrupt is None, "who else would interrupt?"
        sampling = sampling or self._sampling
        limits = max_tokens or [sampling.max_tokens] * len(prompts)
        responses = [Response((), (), finish_reason="abort")] * len(prompts)
        while running := [row for row, response in enumerate(responses) if response.finish_reason == "abort"]:
            with self._turn(gives_way=True):
                parts = self._engine.generate(
                    [[*prompts[row], *responses[row].token_ids] for row in running],
                    [continuation_seed(seeds[row], len(responses[row].token_ids)) for row in running],
                    sampling,
                    max_tokens=[limits[row] - len(responses[row].token_ids) for row in running],
                    interrupt=self._interrupt,
                )
            for row, part in zip(running, parts, strict=True):
                responses[row] = joined(responses[row], part)
        return responses

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine."""
        with self._turn():
            return self._engine.log_probs(sequences)

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """As in RolloutEngine."""
        with self._turn():
            self._engine.update_weights(weights)

    def weight_sums(self) -> Sums:
        """As in RolloutEngine."""
        with self._turn():
            return self._engine.weight_sums()

    def sleep(self) -> None:
        """As in RolloutEngine."""
        with self._turn():
            self._engine.sleep()

    def close(self) -> None:
        """As in RolloutEngine."""
        with self._turn():
            self._engine.close()

    @contextmanager
    def _turn(self, *, gives_way: bool = False) -> Iterator[None]:
        """The engine for oneself. Who does not give way goes first, and interrupts who does."""
        with self._free:
            if not gives_way:
                self._waiting += 1
                self._interrupt.set()
            self._free.wait_for(lambda: not self._busy and not (gives_way and self._waiting))
            self._busy = True
            if not gives_way:
                self._waiting -= 1
                if not self._waiting:
                    self._interrupt.clear()
        try:
            yield
        finally:
            with self._free:
                self._busy = False
                self._free.notify_all()


def joined(start: Response, rest: Response) -> Response:
    """The response that was interrupted after `start` and ended, or was interrupted again, with `rest`."""
    return replace(
        rest,
        token_ids=start.token_ids + rest.token_ids,
        log_probs=start.log_probs + rest.log_probs,
        chosen=start.chosen + rest.chosen,
    )
