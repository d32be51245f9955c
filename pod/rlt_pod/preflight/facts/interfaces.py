"""The network interfaces of a pod, from the kernel."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SIOCGIFADDR = 0x8915
"""ioctl that returns the IPv4 address of an interface (netdevice(7))."""
INET6 = Path("/proc/net/if_inet6")
NET = Path("/sys/class/net")


@dataclass(frozen=True)
class Interface:
    """A network interface."""

    name: str
    addresses: tuple[str, ...]
    mtu: int
    """0: unknown."""


def list_interfaces() -> tuple[Interface, ...]:
    """Return the interfaces of this network namespace."""
    return tuple(Interface(name, _find_addresses(name), _read_mtu(name)) for _, name in socket.if_nameindex())


def find_interface(interfaces: tuple[Interface, ...], address: str) -> Interface | None:
    """Return the interface that has the address."""
    return next((each for each in interfaces if address in each.addresses), None)


def select_by_nccl(value: str, interfaces: tuple[Interface, ...]) -> list[Interface]:
    """Return the interfaces that NCCL_SOCKET_IFNAME selects: prefixes, "=" for exact names, "^" to exclude.

    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
    """
    return [each for each in interfaces if matches_nccl(value, each.name)]


def select_by_gloo(value: str, interfaces: tuple[Interface, ...]) -> list[Interface]:
    """Return the interfaces that GLOO_SOCKET_IFNAME selects: exact names, separated by commas."""
    names = value.split(",")
    return [each for each in interfaces if each.name in names]


def matches_nccl(value: str, name: str) -> bool:
    """Whether a list in NCCL's format (NCCL_SOCKET_IFNAME, NCCL_IB_HCA without ports) selects the name."""
    excludes = value.startswith("^")
    rest = value.lstrip("^")
    exact = rest.startswith("=")
    rest = rest.lstrip("=")
    entries = [each.partition(":")[0] for each in rest.split(",") if each]
    return any(name == each if exact else name.startswith(each) for each in entries) != excludes


def use_interface_of(address: str) -> None:
    """Make gloo listen on the node's `address`. By default it resolves the host name, which may give loopback.

    A GLOO_SOCKET_IFNAME that is set is kept.
    """
    try:
        resolved = socket.getaddrinfo(socket.gethostname(), None)
    except socket.gaierror:
        resolved = []
    if any(entry[4][0] == address for entry in resolved):
        return
    found = find_interface(list_interfaces(), address)
    if found is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", found.name)


def _find_addresses(name: str) -> tuple[str, ...]:
    request = struct.pack("256s", name.encode()[:15])
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened, suppress(OSError):  # it has no IPv4 address
        found.append(socket.inet_ntoa(fcntl.ioctl(opened.fileno(), SIOCGIFADDR, request)[20:24]))
    lines = [line.split() for line in INET6.read_text().splitlines()] if INET6.exists() else []
    found += [str(ipaddress.IPv6Address(int(each[0], 16))) for each in lines if each[-1] == name]
    return tuple(found)


def _read_mtu(name: str) -> int:
    try:
        return int((NET / name / "mtu").read_text())
    except (OSError, ValueError):
        return 0
