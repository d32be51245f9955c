"""spec.network: requirements on the fabric, and how pods attach to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import ApiModel, DnsLabel

InterfaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:=,^-]+$", max_length=128)]


class Network(ApiModel):
    """Requirements on the fabric, and how pods attach to it."""

    require: Literal["any", "rdma", "tcp"] = "any"
    """rdma stops the job instead of falling back to TCP. tcp uses only TCP. any uses the fabric of the nodes."""
    profile: DnsLabel | None = None
    """The network profile: see docs/networking.md. Default: selected by labels and resources of the nodes."""
    attach: Literal["podNetwork", "hostNetwork", "multus", "dra"] | None = None
    """How pods attach to the fabric. multus needs the annotation k8s.v1.cni.cncf.io/networks, dra a resourceClaim, both
    in the podTemplate of the workers. Default: the profile's mode."""
    socket_interface: InterfaceName | None = None
    """The interface for control traffic (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME). Default: the profile's."""
    hcas: Annotated[list[InterfaceName], Field(max_length=32)] = []
    """The host channel adapters (NCCL_IB_HCA). Default: the profile's."""
