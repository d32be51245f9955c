"""The networks in NCCL's log: lines of real logs of several versions and networks."""

from __future__ import annotations

import pytest

from rlt_pod.preflight.facts.nccl_log import parse_transports

INFINIBAND = """
gpu-114:12345:12361 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE ; OOB eth0:10.0.0.1<0>
gpu-114:12345:12361 [0] NCCL INFO Using network IB
gpu-114:12345:12361 [0] NCCL INFO Channel 00/16 :  0  1  2  3
gpu-114:12345:12361 [0] NCCL INFO Channel 00/0 : 4[4] -> 0[0] [receive] via NET/IB/0/GDRDMA
gpu-114:12345:12361 [0] NCCL INFO Channel 02/0 : 9[1] -> 1[1] [send] via NET/IB/1
gpu-114:12345:12361 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""
EFA = """
node-0-0:172:172 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v11)
node-0-0:172:172 [0] NCCL INFO Using network Libfabric
node-0-0:172:172 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 3 nics)
gpu-node-02:1:1 [3] NCCL INFO Channel 00 : 6[2] -> 7[3] via SHM/direct/direct
gpu-node-02:1:1 [3] NCCL INFO Channel 00/0 : 7[3] -> 0[0] [send] via NET/Libfabric/0
"""
OLDER_EFA = """
worker-0:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)
worker-0:21:21 [0] NCCL INFO Using network AWS Libfabric
worker-0:21:21 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA
"""
TCP = """
ubuntu:1482:1482 [0] NCCL INFO NET/IB : No device found.
ubuntu:1482:1482 [0] NCCL INFO NET/Socket : Using [0]eno1:172.22.116.89<0> [1]ztyou3pbk2:192.168.193.155<0>
ubuntu:1482:1482 [0] NCCL INFO Using network Socket
"""
OLD_RINGS = """
node01:21115:21146 [0] NCCL INFO Ring 00 : 1 -> 0 [receive] via NET/IB/0
node01:21115:21146 [0] NCCL INFO Ring 00 : 0 -> 1 [send] via NET/IB/0
"""
ONE_NODE = """
a:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
a:1:1 [0] NCCL INFO Using network Socket
a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""


@pytest.mark.parametrize(
    ("log", "networks"),
    [
        (INFINIBAND, ("IB",)),
        (EFA, ("Libfabric",)),
        (OLDER_EFA, ("AWS Libfabric",)),
        (TCP, ("Socket",)),
        (OLD_RINGS, ("IB",)),
        (ONE_NODE, ()),
        ("", ()),
    ],
)
def test_the_networks_between_nodes_are_found(log: str, networks: tuple[str, ...]) -> None:
    assert parse_transports(log) == networks


def test_one_channel_over_tcp_is_found_among_others() -> None:
    mixed = INFINIBAND + "b:1:1 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n"
    assert parse_transports(mixed) == ("IB", "Socket")
