"""Environment variables of a source: into cluster.env, the field that mapping.toml names, or a comment."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlt.convert.draft import Draft
from rlt.convert.text import SECRET, is_known, reveal, show
from rlt_api.frameworks.mapping import find, load_mapping
from rlt_api.rules.environment import RESERVED_NAMES

INTERFACE = re.compile(r"[a-z][a-z0-9]*\d(np\d+|s\d+)*")
"""The whole name of a network interface. NCCL_SOCKET_IFNAME also takes beginnings, lists, = and ^."""
DEVICES = re.compile(r"[A-Za-z][\w-]*\d(,[A-Za-z][\w-]*\d)*")
"""A plain list of names for NCCL_IB_HCA, without =, ^ and ports."""
PLUMBING = re.compile(
    r"(^|_)(PORT|ADDR|ADDRESS|IP|HOST|NODE|NODES|RANK|NODELIST)$|^(ip_head|port|SLURM_|RAY_ADDRESS|COMMAND$|CONTAINER$|MOUNTS$)"
)
"""Variables that start or address a cluster."""
PATHS = re.compile(r"(^|_)PATH$")
"""Folders of the machine, or of the image."""


def apply_environment(draft: Draft, variables: Mapping[str, str], lines: Mapping[str, int]) -> None:
    """Carry over environment variables. The value of the source has precedence over the network profile's."""
    for name, value in variables.items():
        line = lines.get(name)
        found = find(name, load_mapping().environment)
        fields = found.fields if found else ("spec.cluster.env",)
        if SECRET.search(name):
            draft.leave_out(name, "put it into a Secret, and name that in spec.cluster.env (secretKeyRef)", line)
        elif name in RESERVED_NAMES:
            draft.leave_out(f"{name}={show(value)}", RESERVED_NAMES[name], line)
        elif found and found.reason:
            draft.leave_out(f"{name}={show(value)}", found.reason, line)
        elif not is_known(value):
            draft.leave_out(f"{name}={show(value)}", "its value is not in the script: set it in spec.cluster.env", line)
        elif name == "NCCL_IB_HCA" and DEVICES.fullmatch(value):
            draft.put("network.hcas", value.split(","))
        elif name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            _apply_interface(draft, name, value, variables)
        elif fields != ("spec.cluster.env",) and not name.startswith(("NCCL_", "RCCL_")):
            assert found
            draft.leave_out(f"{name}={show(value)}", f"use {', '.join(fields)}. {found.note}".rstrip(". "), line)
        else:
            draft.add_variable(name, reveal(value))


def _apply_interface(draft: Draft, name: str, value: str, variables: Mapping[str, str]) -> None:
    """One interface for NCCL and gloo is a field. gloo takes whole names only."""
    other = variables.get("GLOO_SOCKET_IFNAME" if name.startswith("NCCL") else "NCCL_SOCKET_IFNAME", value)
    if other == value and INTERFACE.fullmatch(value):
        draft.put("network.socketInterface", value)
    else:
        draft.add_variable(name, reveal(value))
