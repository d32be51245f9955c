"""The objects of one kind, reduced to what the operator reads, with one index. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rlt_core.job import Manifest

T = TypeVar("T")

Name = tuple[str, str]
"""Namespace and name of an object. The namespace of a cluster-scoped object is empty."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry(Generic[T]):
    """An object of a store."""

    version: int
    index: Hashable
    value: T


class Store(Generic[T]):
    """The objects of one kind. An older version of an object never replaces a newer one.

    The operator puts the response of each of its writes into the store. A reconciliation therefore observes all earlier
    writes, although the watch may deliver them later. It may also have delivered them, and a deletion, before.
    """

    def __init__(
        self,
        parse: Callable[[Manifest], T | None],
        index: Callable[[Manifest], Hashable],
        *,
        max_of_a_namespace: int | None = None,
        max_removed: int = 0,
    ) -> None:
        """`parse` reduces an object, or returns None for an object that is not needed. `index` returns its index key.

        With `max_of_a_namespace`, a new object replaces the oldest one of its namespace. With `max_removed`, the last
        states of this number of removed objects are kept for each index key.
        """
        self._parse = parse
        self._index = index
        self._max_of_a_namespace = max_of_a_namespace
        self._max_removed = max_removed
        self._removed: dict[Hashable, list[T]] = {}
        self._entries: dict[Name, Entry[T]] = {}
        self._names: dict[Hashable, set[Name]] = {}
        self._namespaces: dict[str, dict[Name, None]] = {}
        """The names in each namespace, the oldest object first."""
        self._values: tuple[T, ...] | None = None
        self._reached: dict[str | None, int] = {}
        self.served = True
        """Whether the API server has this kind of object."""

    def count(self) -> int:
        """Number of objects."""
        return len(self._entries)

    def get(self, name: Name) -> T | None:
        """The object of that name."""
        entry = self._entries.get(name)
        return entry.value if entry else None

    def select(self, index: Hashable) -> list[T]:
        """The objects with that index key, ordered by name."""
        return [self._entries[name].value for name in sorted(self._names.get(index, ()))]

    def select_removed(self, index: Hashable) -> list[T]:
        """The last states of the latest removed objects with that index key."""
        return list(self._removed.get(index, ()))

    def forget_removed(self, index: Hashable) -> None:
        """Drop the last states of the removed objects with that index key."""
        self._removed.pop(index, None)

    def values(self) -> tuple[T, ...]:
        """All objects, ordered by name: the same tuple until one changes."""
        if self._values is None:
            self._values = tuple(self._entries[name].value for name in sorted(self._entries))
        return self._values

    def names(self, namespace: str | None = None) -> list[Name]:
        """The names of all objects, or of those in a namespace."""
        return list(self._entries if namespace is None else self._namespaces.get(namespace, ()))

    def put(self, manifest: Manifest, *, again: bool = False) -> bool:
        """Store an object. Returns whether its reduced value has changed.

        With `again`, it also replaces an object of the same version: the schema of its kind has changed.
        """
        name = get_name(manifest)
        version = get_version(manifest)
        known = self._entries.get(name)
        if known and (known.version > version or (known.version == version and not again)):
            return False
        try:
            value = self._parse(manifest)
            index = self._index(manifest)
        except (KeyError, TypeError, ValueError, AttributeError):
            log.exception("cannot parse %s %s", manifest.get("kind", "object"), "/".join(name))
            return False
        if value is None:
            return self._drop(name) is not None
        if known and known.value == value and known.index == index:
            self._entries[name] = Entry(version, index, known.value)
            of_namespace = self._namespaces[name[0]]
            of_namespace[name] = of_namespace.pop(name)  # then it is the newest
            return False
        self._drop(name)
        self._entries[name] = Entry(version, index, value)
        self._names.setdefault(index, set()).add(name)
        of_namespace = self._namespaces.setdefault(name[0], {})
        of_namespace[name] = None
        if self._max_of_a_namespace is not None and len(of_namespace) > self._max_of_a_namespace:
            self._drop(next(iter(of_namespace)))
        return True

    def put_response(self, manifest: Manifest) -> bool:
        """Store the response of a request. Returns whether the reduced value of the object has changed.

        The watch may have delivered later changes before the response arrives: an object that the store then lacks was
        deleted meanwhile.
        """
        name = get_name(manifest)
        if name not in self._entries and get_version(manifest) <= self._get_reached(name[0]):
            return False
        return self.put(manifest)

    def reach(self, version: int, namespace: str | None) -> None:
        """Note that every deletion up to `version` is known, of `namespace`, or of all if it is None."""
        self._reached[namespace] = max(version, self._reached.get(namespace, 0))

    def remove(self, manifest: Manifest) -> bool:
        """Remove a deleted object, unless the store has a newer one of the same name. Returns whether it did."""
        name = get_name(manifest)
        known = self._entries.get(name)
        return known is not None and known.version <= get_version(manifest) and self._remove(name)

    def forget(self, name: Name, version: int | None) -> bool:
        """Remove the object of that name, which a read did not find. Returns whether it did.

        `version` is its version in the store before the read. An object that the watch has changed meanwhile stays.
        """
        return self.version_of(name) == version and self._remove(name)

    def version_of(self, name: Name) -> int | None:
        """The resourceVersion of the object with that name; None if the store lacks it."""
        entry = self._entries.get(name)
        return entry.version if entry else None

    def retain(self, listed: Iterable[Name], version: int, namespace: str | None) -> list[Name]:
        """After a list of version `version`: remove the objects that it lacks. Returns their names.

        Removes objects of `namespace` only, if it is set. Objects newer than the list stay.
        """
        return self._retain(listed, version, self.names(namespace))

    def retain_index(self, index: Hashable, listed: Iterable[Name], version: int) -> list[Name]:
        """Like `retain`, for a list of the objects with that index key."""
        return self._retain(listed, version, self._names.get(index, ()))

    def get_index(self, name: Name) -> Hashable | None:
        """The index key of the object with that name."""
        entry = self._entries.get(name)
        return entry.index if entry else None

    def forget_namespace(self, namespace: str) -> None:
        """Drop everything of a namespace that is no longer watched."""
        for name in self.names(namespace):
            self.forget_removed(self._entries[name].index)
            self._drop(name)
        self._reached.pop(namespace, None)

    def _get_reached(self, namespace: str) -> int:
        return max(self._reached.get(None, 0), self._reached.get(namespace, 0))

    def _retain(self, listed: Iterable[Name], version: int, known: Iterable[Name]) -> list[Name]:
        kept = set(listed)
        lost = [name for name in known if name not in kept and self._entries[name].version <= version]
        for name in lost:
            self._remove(name)
        return lost

    def _remove(self, name: Name) -> bool:
        """Drop an object that no longer exists. Returns whether the store had it."""
        entry = self._drop(name)
        if entry and self._max_removed:
            self._removed[entry.index] = [*self._removed.get(entry.index, ()), entry.value][-self._max_removed :]
        return entry is not None

    def _drop(self, name: Name) -> Entry[T] | None:
        self._values = None
        entry = self._entries.pop(name, None)
        if entry:
            names = self._names[entry.index]
            names.discard(name)
            if not names:
                del self._names[entry.index]
            del self._namespaces[name[0]][name]
            if not self._namespaces[name[0]]:
                del self._namespaces[name[0]]
        return entry


def get_name(manifest: Manifest) -> Name:
    """Namespace and name of an object."""
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def get_version(manifest: Manifest) -> int:
    """The resourceVersion of an object or list. Kubernetes 1.35 guarantees that they are ordered integers.

    https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
    """
    return int(manifest["metadata"]["resourceVersion"])
