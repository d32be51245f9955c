"""status.network: the decision about fabric and accelerators."""

from __future__ import annotations

from typing import Annotated

from rlt_api.model import (
    ApiModel,
    Count,
    CutTo,
    Message,
    Names,
    Sentence,
    StatusModel,
    Word,
)


class NetworkVariable(ApiModel):
    """An environment variable and the reason for its value."""

    name: Word
    """Name of the variable."""
    value: Sentence
    """Value of the variable. Values of Secrets and ConfigMaps are not read."""
    rule: Word
    """Reason for the value."""
    source: Word
    """Source of the reason, or user or RLRuntime if one of them sets the variable."""


class NetworkRejection(ApiModel):
    """The reason why the nodes do not meet the requirements of the job."""

    code: Word
    """A reason of the condition FabricVerified."""
    message: Message
    """The evidence and the fix."""


class NetworkAttachment(StatusModel):
    """How worker pods attach to the fabric."""

    mode: Word
    """podNetwork, hostNetwork, multus or dra."""
    resources: Annotated[dict[str, Count], CutTo(64)] = {}
    """Extended resources of a worker on a whole node. A worker on a part of a node gets a part of them."""
    networks: Names = []
    """Networks of GKE multi-networking, in the order of the pods' interfaces."""
    compute_domain: bool = False
    """Whether workers claim a channel of the job's ComputeDomain (NVLink between nodes)."""
    mounts: Annotated[dict[str, Sentence], CutTo(32)] = {}
    """Path on the host to path in the worker pods."""
    capabilities: Names = []
    """Capabilities of the worker containers."""
    supplemental_groups: Annotated[list[Count], CutTo(64)] = []
    """Supplementary groups of the worker processes."""


class NetworkStatus(StatusModel):
    """The decision about fabric and accelerators before the Ray cluster is created, with its reasons."""

    profile: Word
    """The network profile, as in docs/networking.md."""
    fabric: Word
    """infiniband, roce, efa, gib, tcpx, tcpxo, tcp or none, or mnnvl+ and one of them."""
    vendor: Word
    """nvidia, amd or none."""
    agree: bool
    """Whether all candidate nodes need the same settings. If not, the generic profile of the vendor is used."""
    candidates: Count
    """Number of nodes that can run a worker: ready, schedulable, tolerated, healthy, with enough accelerators."""
    accelerators_per_node: Count = 0
    """Minimum number of accelerators in a candidate node."""
    rejection: NetworkRejection | None = None
    """The reason why the job cannot start."""
    evidence: Annotated[list[Sentence], CutTo(64)] = []
    """Detected facts, with the number of nodes for each."""
    env: Annotated[list[NetworkVariable], CutTo(160)] = []
    """Variables of all pods for network and accelerators, including the user's."""
    overridden_by_user: Annotated[list[Word], CutTo(160)] = []
    """Variables of the profile that the user overrides."""
    attach: NetworkAttachment
    """How worker pods attach to the fabric."""
    excluded_nodes: Annotated[list[Word], CutTo(512)] = []
    """Nodes excluded from the job: a health controller marked them unhealthy, or they caused the failure of an earlier
    attempt."""
    warnings: Annotated[list[Sentence], CutTo(64)] = []
    """Warnings about the decision."""
