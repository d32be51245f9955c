"""Folders, addresses and ports of a cluster. No I/O."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SUBNET = 100
FIRST_PORT = 16440

SERVICE_NETWORK = "10.96.0.0/16"
"""Used only inside nodes: all clusters on a machine have the same service addresses."""
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"

PORT_NAMES = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")


def state_folder() -> Path:
    """Return ``$XDG_STATE_HOME/rlt``, by default ``~/.local/state/rlt``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "rlt"


def default_state() -> Path:
    """Return the state folder of the cluster that `make demo` and `make cluster-up` use."""
    return state_folder() / "cluster"


@dataclass(frozen=True)
class Node:
    number: int
    """1 for the first node."""
    subnet: int
    folder: Path

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        return f"10.{self.subnet}.0.{self.number + 1}"

    @property
    def pods(self) -> str:
        return f"10.{self.subnet}.{self.number}.0/24"

    @property
    def veth(self) -> str:
        return f"rlt{self.subnet}-{self.name}"

    @property
    def cgroup(self) -> str:
        return f"/rlt{self.subnet}-{self.name}"


@dataclass(frozen=True)
class Layout:
    """`nodes` 0 means only a control plane on loopback, without its own network.

    The addresses of a cluster with nodes are in 10.SUBNET.0.0/16: the machine is .0.1, node N is .0.(N+1), and the
    pods of node N are .N.0/24, with N below 128. Clusters with different state, subnet and ports run side by side.
    """

    state: Path
    nodes: int
    first_port: int = FIRST_PORT
    subnet: int = SUBNET

    @classmethod
    def numbered(cls, number: int, *, nodes: int) -> Self:
        """Return the default cluster (0), or one with other ports and addresses that can run at the same time."""
        state = default_state().with_name(f"cluster-{number}" if number else "cluster")
        return cls(state.absolute(), nodes, FIRST_PORT + 10 * number, SUBNET + 10 * number)

    @property
    def network(self) -> str:
        return f"10.{self.subnet}.0.0/16"

    @property
    def fake_pods(self) -> str:
        """Addresses of pods on fake nodes. They are not reachable."""
        return f"10.{self.subnet}.128.0/17"

    @property
    def bridge(self) -> str:
        return f"rlt{self.subnet}"

    @property
    def machine(self) -> str:
        """Address of the machine on the bridge."""
        return f"10.{self.subnet}.0.1"

    @property
    def address(self) -> str:
        """Address that the control plane listens on."""
        return self.machine if self.nodes else "127.0.0.1"

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.port('kube-apiserver')}"

    @property
    def certificates(self) -> Path:
        return self.state / "certificates"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def audit_log(self) -> Path:
        """Writes to the API server, one JSON object per line."""
        return self.logs / "audit.log"

    @property
    def admin(self) -> Path:
        """Kubeconfig for users and tests."""
        return self.state / "kubeconfig"

    def port(self, name: str) -> int:
        return self.first_port + PORT_NAMES.index(name)

    def kubeconfig(self, user: str) -> Path:
        return self.state / "kubeconfigs" / user

    def all_nodes(self) -> list[Node]:
        return [Node(number, self.subnet, self.state / f"node-{number}") for number in range(1, self.nodes + 1)]

    def node(self, name: str) -> Node:
        """Return the node of this name. Raises ValueError if it does not exist."""
        for node in self.all_nodes():
            if node.name == name:
                return node
        raise ValueError(f"node {name!r} does not exist: use one of {[node.name for node in self.all_nodes()]}")
