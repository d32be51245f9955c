"""A lost connection between ranks: the kernel's timeout, and the message."""

from __future__ import annotations

import socket

import pytest

from rlt_trainer.cluster.connections import CONNECTION_TIMEOUT_S, describe_lost_connection, watch_connections

PODS = {"10.0.3.7": "sum-workers-worker-b", "10.0.4.2": "sum-workers-worker-c"}
RAISED = "ray::TrainWorker.update_actor() (pid=214, ip=10.0.3.7, actor_id=1f, repr=<...>)\n  File ...\nRuntimeError: "


def test_connections_to_other_workers_get_a_timeout() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        assert watch_connections({"127.0.0.3"}) == 0
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        assert watch_connections({"127.0.0.2"}) == 1
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        timeout_ms, idle, interval, probes = (ours.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        assert timeout_ms == CONNECTION_TIMEOUT_S * 1000
        assert idle + probes * interval == CONNECTION_TIMEOUT_S


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            "[../gloo/transport/tcp/pair.cc:544] Read error [10.0.4.2]:4123: Connection timed out",
            "Connection timed out",
        ),
        ("[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.4.2]:4123", "Connection closed by peer"),
        ("Write error 10.0.4.2:4123: No route to host. This may indicate", "No route to host"),
    ],
)
def test_a_lost_connection_names_both_pods(error: str, cause: str) -> None:
    message = describe_lost_connection(RAISED + error, PODS)
    assert message
    assert message.startswith(
        f"Pod sum-workers-worker-b lost its connection to pod sum-workers-worker-c: {cause}. Check the network"
    )


@pytest.mark.parametrize("error", [RAISED + "out of memory", "Read error [10.0.4.2]:4123: Connection timed out"])
def test_other_errors_name_no_connection(error: str) -> None:
    assert describe_lost_connection(error, PODS) is None
