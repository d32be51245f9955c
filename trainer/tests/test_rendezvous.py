"""Where the ranks of a process group meet."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.cluster.rendezvous import Rendezvous, interface_of, listen_for_ranks
from rlt_trainer.workers.rollout_worker import RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

LOOPBACK = "127.0.0.1"


def test_no_other_process_can_take_the_port_before_the_ranks_connect() -> None:
    store = listen_for_ranks(LOOPBACK)
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind((LOOPBACK, store.port))
    Rendezvous(LOOPBACK, store.port).connect(timedelta(seconds=60)).set("rank", "1")
    assert store.get("rank") == b"1"


def join_group(config: TrainingConfig) -> None:
    TrainWorker(config, 0, 1, address=LOOPBACK).join(HashStore())


def start_engine(config: TrainingConfig) -> None:
    RolloutWorker(config, 0, address=LOOPBACK)


@pytest.mark.parametrize("start", [join_group, start_engine])
@pytest.mark.parametrize("devices", [0, 1], ids=["cpu", "gpu"])
@pytest.mark.parametrize("given", [None, "eth0"], ids=["default", "given"])
def test_gloo_listens_on_the_address_of_the_node(
    make_config: Callable[..., TrainingConfig],
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[TrainingConfig], None],
    devices: int,
    given: str | None,
) -> None:
    """Also on GPUs: checkpoints and the headers of weights have gloo groups there. A given interface is kept."""
    monkeypatch.setattr(socket, "getaddrinfo", raise_gaierror)  # the name of this host may resolve to the address
    monkeypatch.setattr(dist, "init_process_group", lambda *arguments, **options: None)  # NCCL requires a GPU
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", given or "")  # restored after the test
    if given is None:
        monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    start(make_config(devicesPerWorker=devices))
    assert os.environ["GLOO_SOCKET_IFNAME"] == (given or interface_of(LOOPBACK))
    assert "NCCL_SOCKET_IFNAME" not in os.environ


def raise_gaierror(*arguments: Any) -> Any:
    raise socket.gaierror
