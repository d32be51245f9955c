"""Which groups of responses are sent when, and which of them are the batch of a step.

A group is the responses to one prompt. Groups are sent in generations of `size` prompts, the size of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.rollouts import PendingGroup, Rollout


@dataclass(eq=False)
class Group:
    """The responses to one prompt, complete or not."""

    number: int
    """Position of the prompt in the endless sequence of the data set."""
    started: int
    """The step in progress when the requests were sent. The responses start with its weights, or with newer ones."""
    prompt: Prompt
    seeds: Sequence[int]
    """The seed of each response."""
    pending: PendingGroup

    def results(self) -> list[Rollout] | None:
        """Return the responses. None: they are not complete, or an engine failed."""
        scored = self.pending.scored
        return scored.result() if scored.done() and scored.exception() is None else None


class Selection(Protocol):
    """Selects the groups that can be in a batch (algorithm.filterGroups)."""

    def keep(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups to keep of a complete generation."""
        ...

    def validate_progress(self, step: int, ready: int) -> None:
        """Report that the batch of `step` has `ready` groups and requires more. May raise TrainingError, Terminated."""
        ...


class Schedule:
    """Sends generations, at most `max_staleness` steps ahead of the training, and chooses the batch of each step.

    max_staleness 0 is on-policy: a batch is complete generations of the same step. Otherwise half of the bound, rounded
    up, is for generations that are sent ahead. The other half is for slow groups: the batch of a step has the groups
    that are complete, unless a group would then miss the bound. 1 is verl's one_step_off_policy.

    All calls come from one thread.
    """

    def __init__(
        self,
        start: Callable[[int], list[Group]],
        *,
        size: int,
        max_staleness: int,
        last_step: int,
        selection: Selection | None = None,
        wait: Callable[[Future[None], bool], None],
    ) -> None:
        """`start` sends a generation in a step.

        `wait` waits for a future. Its second argument is whether responses are incomplete, or only their scores.
        """
        self._start = start
        self._size = size
        self._max_staleness = max_staleness
        self._ahead = (max_staleness + 1) // 2
        self._last_step = last_step
        self._selection = selection
        self._wait = wait
        self._pending: list[list[Group]] = []
        """Groups that become ready together: single ones, or generations with `selection`."""
        self._ready: list[Group] = []
        """Complete groups that can be in a batch."""
        self._batch: tuple[int, list[Group]] = (0, [])
        """The latest step and its groups."""
        self._changed: Future[None] = Future()

    def restore(self, ready: Sequence[Group], others: Sequence[Group]) -> None:
        """Add groups of a checkpoint. `others` are not complete, or not selected yet."""
        self._ready += ready
        self._add(others)

    def next_batch(self, step: int) -> list[Group]:
        """Wait for the groups of `step`'s batch, and return them in the order of the data."""
        while True:
            self._changed = Future()  # before the groups are examined: a later completion wakes `wait`
            self._collect(step)
            self._send(step)
            unfinished = [group for unit in self._pending for group in unit]
            chosen = choose_groups(
                self._ready, unfinished, step=step, size=self._size, max_staleness=self._max_staleness
            )
            if chosen is not None:
                self._batch = step, chosen
                in_batch = set(chosen)
                # With `selection`, more groups can be ready than the batch needs.
                self._ready = [
                    group
                    for group in self._ready
                    if group not in in_batch and group.started + self._max_staleness > step
                ]
                return chosen
            self._wait(self._changed, any(not group.pending.generated.done() for group in unfinished))

    def send_ahead(self, step: int) -> None:
        """Send the groups of `step` before it begins, with the weights that it begins with. Not on-policy."""
        if self._max_staleness > 0 and step <= self._last_step:
            self._send(step)

    def groups_ahead(self, step: int) -> tuple[list[Group], list[Group]]:
        """Return the groups of steps after `step`, for its checkpoint: `ready` and `others` of `restore`.

        On-policy groups that are not in a batch are left out: the resumed run generates them again, as any other run.
        """
        batch = self._batch[1] if self.has_batch_after(step) else []
        if self._max_staleness == 0:
            return batch, []
        return [*batch, *self._ready], [group for unit in self._pending for group in unit]

    def has_batch_after(self, step: int) -> bool:
        """Whether the latest batch belongs to a step after `step`."""
        return self._batch[0] > step

    def _collect(self, step: int) -> None:
        """Move the groups that are complete to `_ready`."""
        complete: list[list[Group]] = []
        pending: list[list[Group]] = []
        for unit in self._pending:
            (complete if all(group.pending.scored.done() for group in unit) else pending).append(unit)
        if not complete:
            return
        self._pending = pending
        for unit in complete:
            self._ready += self._selection.keep(unit) if self._selection else unit
        self._ready.sort(key=lambda group: group.number)
        if self._selection and len(self._ready) < self._size:
            self._selection.validate_progress(step, len(self._ready))

    def _send(self, step: int) -> None:
        ahead = min(self._ahead, self._last_step - step)
        while True:
            unfinished = sum(len(unit) for unit in self._pending)
            count = len(self._ready) + unfinished
            # More than max_staleness + 1 batches could not all be trained on within the bound.
            has_room = count < (1 + ahead) * self._size and count <= self._max_staleness * self._size
            if not has_room and (unfinished or len(self._ready) >= self._size):
                return
            self._add(self._start(step))

    def _add(self, groups: Sequence[Group]) -> None:
        self._pending += [list(groups)] if self._selection and groups else [[group] for group in groups]
        for group in groups:
            group.pending.generated.add_done_callback(self._wake)
            group.pending.scored.add_done_callback(self._wake)

    def _wake(self, _: object) -> None:
        with suppress(InvalidStateError):  # another group has ended
            self._changed.set_result(None)


def choose_groups(
    ready: Sequence[Group], unfinished: Sequence[Group], *, step: int, size: int, max_staleness: int
) -> list[Group] | None:
    """Choose the groups of `step`'s batch: the first `size` that are ready. None: wait for other groups.

    A batch waits for an unfinished group that would miss the bound otherwise. A group that started in step s can be in
    the batch of step s + max_staleness at the latest, and each step has `size` groups.
    """
    chosen = list(ready[:size])
    rest = [*ready[size:], *unfinished]
    if len(chosen) < size:
        return None
    for later in range(max_staleness + 1 if unfinished else 0):
        due = sum(group.started + max_staleness <= step + later for group in rest)
        if due > later * size:
            return None
    return chosen
