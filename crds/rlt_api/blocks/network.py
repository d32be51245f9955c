"""spec.network: what the fabric must be, and how pods are attached to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import ApiModel, DnsLabel

InterfaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:=,^-]+$", max_length=128)]


class Network(ApiModel):
    """What the fabric must be, and how pods are attached to it."""

    require: Literal["any", "rdma", "tcp"] = "any"
    """rdma holds the job rather than fall back to TCP in silence; tcp uses nothing else; any takes what there is."""
    profile: DnsLabel | None = None
    """A profile in docs/reference/network-profiles.md. Default: chosen from labels and resources of the nodes."""
    attach: Literal["podNetwork", "hostNetwork", "multus", "dra"] = "podNetwork"
    """How pods get at the fabric. multus needs the annotation k8s.v1.cni.cncf.io/networks, dra a resourceClaim, in the
    workers' podTemplate. Default: the profile's own way."""
    socket_interface: InterfaceName | None = None
    """The interface of the control plane (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME). Default: the profile's."""
    hcas: Annotated[list[InterfaceName], Field(max_length=32)] = []
    """The host channel adapters (NCCL_IB_HCA). Default: the profile's."""
