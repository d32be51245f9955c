"""Which shard a namespace belongs to, and what Leases and options say about shards."""

from __future__ import annotations

from collections import Counter

import pytest

from rlt_core.shards import ALL, MAX_SHARDS, Shard, choose_shard, name_lease, parse_group, parse_shard

NAMESPACES = [f"team-{number}" for number in range(1000)]


@pytest.mark.parametrize(
    ("namespace", "shards"),
    [("default", [0, 1, 1, 9]), ("team-a", [0, 0, 0, 6]), ("jobs-1000", [0, 0, 2, 4])],
)
def test_the_hash_never_changes(namespace: str, shards: list[int]) -> None:
    """Processes of two versions with the same number of shards run side by side in an upgrade."""
    assert [choose_shard(namespace, total) for total in (1, 2, 4, 10)] == shards


@pytest.mark.parametrize("total", range(1, MAX_SHARDS + 1))
def test_each_namespace_has_one_shard_and_no_shard_has_twice_its_share(total: int) -> None:
    shards = [Shard(number, total) for number in range(total)]
    found = Counter(shard for namespace in NAMESPACES for shard in shards if shard.has(namespace))
    assert sum(found.values()) == len(NAMESPACES)
    assert max(found.values()) < 2 * len(NAMESPACES) / total
    assert set(found) == set(shards)


@pytest.mark.parametrize(("text", "shard"), [("0/1", ALL), ("0/4", Shard(0, 4)), ("9/10", Shard(9, 10))])
def test_a_shard_is_parsed(text: str, shard: Shard) -> None:
    assert parse_shard(text) == shard


@pytest.mark.parametrize("text", ["", "1", "4/4", "-1/4", "0/0", "0/11", "a/b", "0/4/8", "1/4 "])
def test_another_text_is_rejected_with_the_text_and_the_fix(text: str) -> None:
    with pytest.raises(ValueError, match="use i/n, the shard i from 0 to n-1") as error:
        parse_shard(text)
    assert str(error.value).startswith(f"{text}: ")


def test_the_holder_of_the_shared_lease_has_the_number_of_shards() -> None:
    assert [parse_group(Shard(1, total).group) for total in (2, 10)] == [2, 10]
    assert [parse_group(holder) for holder in (None, "", "0-shards", "4-shards-0_1a2b3c4d", "pod_1a2b3c4d")] == [
        None
    ] * 5


def test_the_lease_of_a_shard_does_not_depend_on_their_number() -> None:
    """The chart's Role names the Leases, and must fit during an upgrade to another number as well."""
    assert name_lease("rlt-operator", 3) == "rlt-operator-3"
