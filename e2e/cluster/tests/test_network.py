"""The parts of the nodes' network that go by themselves."""

import pytest

from cluster.network import delete_link


def test_a_link_that_went_by_itself_is_no_error() -> None:
    delete_link("rlt-no-link")


def test_a_link_that_stays_is_told() -> None:
    with pytest.raises(ValueError, match="ip link delete lo"):
        delete_link("lo")
