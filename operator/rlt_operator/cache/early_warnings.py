"""Events about pods that the cache does not contain yet: the watches of two kinds are not synchronized."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from rlt_core.job import Manifest
from rlt_operator.cache.store import Name

MAX_AGE_S = 60.0
"""An event whose pod does not appear within this time is dropped."""
MAX_OF_A_NAMESPACE = 100
"""Maximum number of events of a namespace."""
MAX_EVENTS = 2000
"""Maximum number of events of all namespaces."""


class EarlyWarnings:
    """The latest events about unknown pods, by namespace and name of the pod. No I/O."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._events: dict[Name, tuple[float, Name, Manifest]] = {}
        """By namespace and name of the event, the oldest first: time of its arrival, pod, and event."""
        self._of_pods: dict[Name, set[Name]] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Name, pod: Name, manifest: Manifest) -> None:
        """Keep an event. Drops those that are too old, and the oldest ones beyond the bounds."""
        self._drop(event)
        now = self._clock()
        self._events[event] = (now, pod, manifest)
        self._of_pods.setdefault(pod, set()).add(event)
        self._counts[event[0]] += 1
        while now - self._events[oldest := next(iter(self._events))][0] > MAX_AGE_S or len(self._events) > MAX_EVENTS:
            self._drop(oldest)
        if self._counts[event[0]] > MAX_OF_A_NAMESPACE:
            self._drop(next(each for each in self._events if each[0] == event[0]))

    def take(self, pod: Name) -> list[Manifest]:
        """Remove and return the events of a pod that has appeared."""
        now = self._clock()
        found = [self._events[event] for event in sorted(self._of_pods.get(pod, ()))]
        for event in list(self._of_pods.get(pod, ())):
            self._drop(event)
        return [manifest for arrived, _, manifest in found if now - arrived <= MAX_AGE_S]

    def _drop(self, event: Name) -> None:
        found = self._events.pop(event, None)
        if found is None:
            return
        _, pod, _ = found
        self._of_pods[pod].discard(event)
        if not self._of_pods[pod]:
            del self._of_pods[pod]
        self._counts[event[0]] -= 1
        if not self._counts[event[0]]:
            del self._counts[event[0]]
