"""A list of machines without Kubernetes, as Nodes: what device plugins and labels would show.

- {name: gpu-1, accelerator: nvidia.com/gpu, count: 8, fabric: infiniband, adapters: mlx5}
- {name: gpu-2, accelerator: amd.com/gpu, count: 8, instanceType: Standard_ND96isr_MI300X_v5}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlt_core.fabric import aliases

FABRIC_RESOURCES = {"infiniband": "rdma/ib", "roce": "rdma/roce", "efa": aliases.EFA_RESOURCE, "tcp": None}
"""Fabric -> the resource of a node that has it."""
ADAPTERS = {"mlx5": aliases.MELLANOX[0], "pensando": aliases.PENSANDO[0]}
"""Driver of the adapters -> the label of a node that has them."""


class Machine(BaseModel):
    """One machine."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    accelerator: str | None = None
    """The name that the accelerators have in Kubernetes."""
    count: int = Field(default=0, ge=0)
    fabric: str = Field(default="tcp", pattern=f"^({'|'.join(FABRIC_RESOURCES)})$")
    adapters: str | None = Field(default=None, pattern=f"^({'|'.join(ADAPTERS)})$")
    instance_type: str | None = Field(default=None, alias="instanceType")


def build_node(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Build the Node of a machine. Raises ValueError with the field."""
    try:
        read = Machine.model_validate(machine)
    except ValidationError as error:
        first = error.errors()[0]
        name = machine.get("name", "a machine without a name")
        raise ValueError(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    resource = FABRIC_RESOURCES[read.fabric]
    allocatable = {read.accelerator: read.count} if read.accelerator else {}
    allocatable |= {resource: max(1, read.count)} if resource else {}
    labels = {ADAPTERS[read.adapters]: "true"} if read.adapters else {}
    labels |= {aliases.INSTANCE_LABELS[0]: read.instance_type} if read.instance_type else {}
    return {
        "metadata": {"name": read.name, "labels": labels},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }
