"""The store of watched objects: versions, indexes, lists after an interrupted watch, and its bound."""

from __future__ import annotations

from typing import Any

from rlt_operator.cache.store import Store


def manifest(name: str, version: int, *, group: str = "a", value: int = 0) -> dict[str, Any]:
    metadata = {"namespace": "demo", "name": name, "resourceVersion": str(version), "labels": {"group": group}}
    return {"metadata": metadata, "value": value}


def make(**options: Any) -> Store[int]:
    return Store(lambda item: item["value"], lambda item: item["metadata"]["labels"]["group"], **options)


def test_an_older_version_never_replaces_a_newer_one() -> None:
    store = make()
    assert store.put(manifest("x", 9, value=2))
    assert not store.put(manifest("x", 8, value=1))
    assert not store.put(manifest("x", 9, value=1))
    assert store.get(("demo", "x")) == 2


def test_a_change_that_the_reduced_value_does_not_contain_is_ignored() -> None:
    store = make()
    store.put(manifest("x", 1, value=2))
    assert not store.put(manifest("x", 2, value=2))
    assert not store.put(manifest("x", 1, value=3)), "the version is stored although the value is the same"


def test_objects_are_selected_by_their_current_index() -> None:
    store = make()
    store.put(manifest("y", 1, value=1))
    store.put(manifest("x", 2, value=2))
    assert store.select("a") == [2, 1]
    store.put(manifest("x", 3, group="b", value=2))
    assert (store.select("a"), store.select("b")) == ([1], [2])


def test_a_deletion_does_not_remove_a_newer_object_of_that_name() -> None:
    store = make()
    store.put(manifest("x", 5))
    assert not store.remove(manifest("x", 4))
    assert store.remove(manifest("x", 6))
    assert store.get(("demo", "x")) is None
    assert store.select("a") == []


def test_a_list_removes_the_objects_that_were_deleted_meanwhile() -> None:
    store = make()
    for name, version in (("listed", 1), ("deleted", 2), ("created-later", 9)):
        store.put(manifest(name, version))
    assert store.retain([("demo", "listed")], 5, None) == [("demo", "deleted")]
    assert store.names() == [("demo", "listed"), ("demo", "created-later")]
    assert store.retain([], 99, "other") == [], "a list of another namespace"


def test_the_list_of_an_index_keeps_other_objects() -> None:
    store = make()
    store.put(manifest("x", 1))
    store.put(manifest("y", 1, group="b"))
    assert store.retain_index("a", [], 5) == [("demo", "x")]
    assert store.names() == [("demo", "y")]


def test_a_malformed_object_is_skipped() -> None:
    store = make()
    assert not store.put({"metadata": {"name": "x", "namespace": "demo", "resourceVersion": "1"}})
    assert store.names() == []


def test_a_bounded_store_drops_the_oldest_object_of_the_namespace() -> None:
    store = make(max_of_a_namespace=2)
    other = manifest("x", 1, value=0)
    other["metadata"]["namespace"] = "other"
    store.put(other)
    for number in (2, 3):
        store.put(manifest(f"x{number}", number, value=number))
    store.put(manifest("x2", 4, value=2))  # unchanged, but seen again
    store.put(manifest("x5", 5, value=5))
    assert sorted(store.values()) == [0, 2, 5]


def test_a_namespace_is_forgotten() -> None:
    store = make(max_removed=2)
    for version, name in enumerate(("x", "y"), start=1):
        store.put(manifest(name, version))
    store.remove(manifest("x", 3))
    store.reach(3, "demo")
    store.forget_namespace("demo")
    assert [*store.names(), *store.names("demo"), *store.select("a"), *store.select_removed("a")] == []
    assert store.put_response(manifest("y", 2)), "the watch of the namespace has delivered nothing yet"


def test_the_last_states_of_removed_objects_are_kept_up_to_a_number() -> None:
    store = make(max_removed=2)
    for version, name in enumerate(("x", "y", "z", "other"), start=1):
        store.put(manifest(name, version, group="b" if name == "other" else "a", value=version))
    store.put(manifest("z", 5, value=30))
    store.remove(manifest("x", 6))
    store.forget(("demo", "y"), 2)
    assert store.select_removed("a") == [1, 2]
    store.retain([("demo", "other")], 9, None)
    assert (store.select_removed("a"), store.select_removed("b")) == ([2, 30], [])
    store.forget_removed("a")
    assert store.select_removed("a") == []


def test_a_response_does_not_restore_an_object_whose_deletion_the_watch_has_delivered() -> None:
    store = make()
    store.put(manifest("x", 1))
    store.remove(manifest("x", 7))
    store.reach(7, None)
    assert not store.put_response(manifest("x", 6))
    assert store.names() == []
    assert store.put_response(manifest("x", 8)), "created again"


def test_a_response_that_the_watch_has_not_reached_is_stored() -> None:
    store = make()
    store.reach(7, "other")
    assert store.put_response(manifest("x", 6))
    assert store.put_response(manifest("x", 9, value=2))
    assert store.get(("demo", "x")) == 2


def test_a_read_that_finds_nothing_keeps_an_object_that_the_watch_has_delivered_since() -> None:
    store = make()
    store.put(manifest("x", 1))
    before = store.version_of(("demo", "x"))
    store.remove(manifest("x", 5))
    store.put(manifest("x", 6))
    assert not store.forget(("demo", "x"), before)
    assert store.names() == [("demo", "x")]
    assert store.forget(("demo", "x"), 6)
