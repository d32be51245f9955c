"""spec.network: what the fabric must be, and how pods are attached to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import NOT_YET, ApiModel, DnsLabel, NotYet

InterfaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:=,^-]+$", max_length=128)]


class Network(ApiModel):
    """What the fabric must be, and how pods are attached to it."""

    require: Annotated[Literal["any", "rdma", "tcp"], NotYet(("rdma", "tcp"))] = "any"
    """rdma holds the job rather than fall back to TCP in silence; any takes what there is."""
    profile: Annotated[DnsLabel | None, NOT_YET] = None
    """The fabric's profile. Default: found from the nodes' labels."""
    attach: Annotated[
        Literal["podNetwork", "hostNetwork", "multus", "dra"], NotYet(("hostNetwork", "multus", "dra"))
    ] = "podNetwork"
    """How pods get at the fabric."""
    socket_interface: Annotated[InterfaceName | None, NOT_YET] = None
    """The interface of the control plane (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME). Default: the profile's."""
    hcas: Annotated[Annotated[list[InterfaceName], Field(max_length=32)], NOT_YET] = []
    """The host channel adapters (NCCL_IB_HCA). Default: the profile's."""
