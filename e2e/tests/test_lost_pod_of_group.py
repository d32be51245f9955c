"""The pod of a rollout engine is lost while the group that transfers weights connects its members.

No host answers at its address. A process that ends in a running pod is another case: its kernel answers.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlt_e2e.hosts import Host, compute_address, run_ip, start_hosts
from rlt_trainer.rollout.group_channel import JOIN_TIMEOUT

pytestmark = pytest.mark.hosts

HOSTS = ("sender", "receiver", "lost")
FASTER = 6
TIMEOUT_S = JOIN_TIMEOUT.total_seconds() / FASTER
MEMBER = f"""
import sys
import torch
from rlt_trainer.cluster.rendezvous import listen_for_ranks, use_interface_of
from rlt_trainer.rollout import group_channel
from rlt_trainer.rollout.weight_channel import GroupAddress

addresses = {[compute_address(number) for number in range(len(HOSTS))]}
member, port = map(int, sys.argv[1:])
connect = group_channel.ProcessGroupGloo

def wait_and_connect(store, member, size, timeout):
    if member < 2:
        store.wait(["0/2"])  # the address of the lost member
        print("met", flush=True)
        input()
    return connect(store, member, size, timeout / {FASTER})

group_channel.ProcessGroupGloo = wait_and_connect
use_interface_of(addresses[member])
store = listen_for_ranks(addresses[0]) if member == 0 else None
if store:
    port = store.port
    print(port, flush=True)
address = GroupAddress(addresses[0], port, 1, member, len(addresses), addresses)
try:
    group_channel.GroupChannel(address, torch.device("cpu"), store)
except RuntimeError as error:
    print(error)
"""


@pytest.fixture
def hosts() -> Iterator[dict[str, Host]]:
    with start_hosts(HOSTS) as started:
        yield started


def start_member(host: Host, number: int, port: str, names: Path) -> subprocess.Popen[str]:
    """Start a member of the group. `names`: its /etc/hosts, because torch looks up addresses, and no DNS answers."""
    script = f"mount --bind {names} /etc/hosts && exec {sys.executable} -c {shlex.quote(MEMBER)} {number} {port}"
    command = [*host.enter, "unshare", "--mount", "sh", "-c", script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_the_other_members_end_without_the_lost_one(hosts: dict[str, Host], tmp_path: Path) -> None:
    names = tmp_path / "hosts"
    names.write_text("".join(f"{host.address} {name}\n" for name, host in hosts.items()))
    sender = start_member(hosts["sender"], 0, "0", names)
    port = read_line(sender)
    receiver, lost = (start_member(hosts[HOSTS[number]], number, port, names) for number in (1, 2))
    assert [read_line(process) for process in (sender, receiver)] == ["met", "met"]
    run_ip("link", "set", "rlt-hosts-2", "down")
    os.kill(lost.pid, signal.SIGKILL)
    lost.wait()
    for process in (sender, receiver):
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    # The timeout is for all attempts of gloo together.
    errors = [process.communicate(timeout=3 * TIMEOUT_S)[0] for process in (sender, receiver)]
    assert all("Connect timeout" in error for error in errors), errors
