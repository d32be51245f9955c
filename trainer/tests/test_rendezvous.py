"""Where the ranks of a process group meet."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from rlt_trainer.cluster.rendezvous import Rendezvous, listen_for_ranks

LOOPBACK = "127.0.0.1"


def test_no_other_process_can_take_the_port_before_the_ranks_connect() -> None:
    store = listen_for_ranks(LOOPBACK)
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind((LOOPBACK, store.port))
    Rendezvous(LOOPBACK, store.port).connect(timedelta(seconds=60)).set("rank", "1")
    assert store.get("rank") == b"1"
