"""Several hosts on this machine: network namespaces with names and addresses, and the files of the machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "10.187.0"
MACHINE = f"{PREFIX}.1"
"""The address of the machine in the network of the hosts."""
BRIDGE = "rlt-hosts"


@dataclass(frozen=True)
class Host:
    """A host that runs."""

    address: str
    holder: int
    """The process that holds its namespaces."""

    @property
    def enter(self) -> list[str]:
        """The words before a command that runs on the host."""
        return ["nsenter", f"--net=/proc/{self.holder}/ns/net", f"--uts=/proc/{self.holder}/ns/uts"]

    def find_processes(self) -> dict[int, str]:
        """Return the command lines of the processes on the host, by ID."""
        namespace = os.readlink(f"/proc/{self.holder}/ns/net")
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(process / "ns/net") == namespace:
                    found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ").strip()
        return {pid: line for pid, line in found.items() if line and pid != self.holder}


def compute_address(number: int) -> str:
    """Compute the address of a host, numbered from 0."""
    return f"{PREFIX}.{number + 2}"


@contextmanager
def start_hosts(names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """Start hosts that a bridge connects with each other and with the machine. Their processes end with them."""
    with ExitStack() as stack:
        run_ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(run_ip, "link", "delete", BRIDGE)
        run_ip("address", "add", f"{MACHINE}/24", "dev", BRIDGE)
        run_ip("link", "set", BRIDGE, "up")
        hosts = {name: start_host(stack, number, name) for number, name in enumerate(names)}
        yield hosts
        for host in hosts.values():
            for pid in host.find_processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)


def start_host(stack: ExitStack, number: int, name: str) -> Host:
    """Start one host."""
    script = f"hostname {name} && echo ready && exec sleep infinity"
    holder = subprocess.Popen(
        ["unshare", "--net", "--uts", "sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    )
    stack.callback(end_process, holder)
    assert holder.stdout
    holder.stdout.readline()
    host = Host(compute_address(number), holder.pid)
    veth = f"{BRIDGE}-{number}"
    run_ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
    stack.callback(subprocess.run, ["ip", "link", "delete", veth], capture_output=True)  # unless it is gone already
    run_ip("link", "set", veth, "master", BRIDGE, "up")
    for words in (
        ("link", "set", "lo", "up"),
        ("address", "add", f"{host.address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("route", "add", "default", "via", MACHINE),
    ):
        subprocess.run([*host.enter, "ip", *words], check=True)
    return host


def await_true(is_true: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Wait for a condition. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {timeout_s:.0f} s")
        time.sleep(0.2)


def end_process(process: subprocess.Popen[Any]) -> None:
    """End a process with SIGTERM, or with SIGKILL after ten seconds."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_ip(*words: str) -> None:
    """Change the network of the machine."""
    subprocess.run(["ip", *words], check=True)
